# SPDX-License-Identifier: Apache-2.0
import torch
import transformers

torch.set_num_threads(1)  # the models are tiny

WIDTHS = {
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
HEADS = {**WIDTHS, "head_dim": 16}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "vocab_size": 128, "bos_token_id": 1, "eos_token_id": 2}

# family -> (model, config, arguments, layout, activation)
FAMILIES = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", WIDTHS, "separate", "silu"),
    "llama_bias": ("LlamaForCausalLM", "LlamaConfig", {**WIDTHS, "mlp_bias": True}, "separate", "silu"),
    "mistral": ("MistralForCausalLM", "MistralConfig", WIDTHS, "separate", "silu"),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", WIDTHS, "separate", "silu"),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", HEADS, "separate", "silu"),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", HEADS, "separate", "gelu_tanh"),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", HEADS, "separate", "gelu_tanh"),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", HEADS, "separate", "gelu_tanh"),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", WIDTHS, "gate_up", "silu"),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2, "ungated", "gelu_tanh"),
    "starcoder2": ("Starcoder2ForCausalLM", "Starcoder2Config", WIDTHS, "ungated", "gelu_tanh"),
}
LAYERS = 2


def make(family, dtype=torch.float32, **changes):
    model, config, arguments, _, _ = FAMILIES[family]
    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**{**arguments, **changes}))
    with torch.no_grad():
        for name, tensor in made.named_parameters():
            if name.endswith("bias"):
                tensor.normal_(0, 0.1)  # they start as zero
    return made.to(dtype).eval()


def tokens(rows=2, length=9):
    return torch.randint(3, 128, (rows, length), generator=torch.Generator().manual_seed(1))


def blocks(model):
    """(name, module) of the feed-forward blocks: all that is called mlp."""
    return [(name, module) for name, module in model.named_modules() if name.endswith(".mlp")]


def run(model):
    """Logits of the tokens, without gradients."""
    with torch.no_grad():
        return model(tokens()).logits
