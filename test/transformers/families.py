# SPDX-License-Identifier: Apache-2.0
"""Small random models of released families, made by transformers from their config classes."""
import dataclasses

import torch
import transformers

D, FF, LAYERS = 64, 100, 2
WIDTHS = {"hidden_size": D, "intermediate_size": FF, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
          "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64, "max_position_embeddings": 64,
          "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GPT = {"n_embd": D, "n_inner": FF, "n_layer": LAYERS, "n_head": 4, "n_positions": 64, "vocab_size": 64,
       "bos_token_id": 1, "eos_token_id": 2}
SIGLIP = {"hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 14,
          "patch_size": 14}
VIT = {"hidden_size": D, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "mlp_ratio": 2, "image_size": 8,
       "patch_size": 4}
MROPE = WIDTHS | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}}
FALCON = {"hidden_size": D, "ffn_hidden_size": FF, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "vocab_size": 64}
MOE = WIDTHS | {"moe_intermediate_size": 20, "num_experts_per_tok": 2}
MLA = MOE | {"first_k_dense_replace": 1, "n_routed_experts": 4, "n_group": 1, "topk_group": 1, "head_dim": 4,
             "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8,
             "v_head_dim": 12}


@dataclasses.dataclass(frozen=True)
class Family:
    model: str      # class in transformers; its config class makes the configuration
    config: dict
    kind: str       # "separate", "gate|up" or "ungated", as the reader calls the layout
    activation: str
    key: str        # where config.json says so; "": the code has it fixed
    norm: str = ""  # the norm before the block; "": behind it, without weights or stored minus 1
    d_ff: int = FF
    block: tuple = ("mlp", "mlp")  # the first and the last module of the block in its layer
    dense: tuple = tuple(range(LAYERS))  # layers without experts
    stack: str = ""  # a word in the names of the language model's layers


POST, INPUT = "post_attention_layernorm", "input_layernorm"


def gated(model, config=WIDTHS, norm=POST, **more):
    return Family(model, config, "separate", "silu", "hidden_act", norm, **more)


def packed(model, config=WIDTHS):
    return Family(model, config, "gate|up", "silu", "hidden_act", POST)


def gemma(model, config=WIDTHS, key="hidden_activation", **more):
    return Family(model, config, "separate", "gelu_pytorch_tanh", key, **more)


def plain(model, config, activation, key, norm="", **more):
    return Family(model, config, "ungated", activation, key, norm, **more)


# By model_type; a word after "/" tells variants apart.
FAMILIES = {
    "llama": gated("LlamaForCausalLM"),
    "llama/biases": gated("LlamaForCausalLM", WIDTHS | {"mlp_bias": True}),
    "llama/base": gated("LlamaModel"),  # names without "model."
    "mistral": gated("MistralForCausalLM"),
    "ministral": gated("MinistralForCausalLM"),
    "qwen2": gated("Qwen2ForCausalLM"),
    "qwen3": gated("Qwen3ForCausalLM"),
    "smollm3": gated("SmolLM3ForCausalLM"),
    "smollm3/biases": gated("SmolLM3ForCausalLM", WIDTHS | {"mlp_bias": True}),
    "granite": gated("GraniteForCausalLM"),
    "stablelm": gated("StableLmForCausalLM"),
    "stablelm/parallel": gated("StableLmForCausalLM", WIDTHS | {"use_parallel_residual": True}, INPUT),
    "olmo": gated("OlmoForCausalLM", norm=""),
    "olmo2": gated("Olmo2ForCausalLM", norm=""),
    "olmo3": gated("Olmo3ForCausalLM", norm=""),
    "cohere": gated("CohereForCausalLM", norm=INPUT),
    "cohere2": gated("Cohere2ForCausalLM", norm=INPUT),
    "helium": gated("HeliumForCausalLM"),
    "seed_oss": gated("SeedOssForCausalLM"),
    "exaone4": gated("Exaone4ForCausalLM", norm=""),
    "ernie4_5": gated("Ernie4_5ForCausalLM"),
    "hunyuan_v1_dense": gated("HunYuanDenseV1ForCausalLM"),
    "qwen2_vl_text": gated("Qwen2VLTextModel", MROPE),
    "qwen2_5_vl_text": gated("Qwen2_5_VLTextModel", MROPE),
    "qwen2_vl": gated("Qwen2VLForConditionalGeneration", {
        "text_config": MROPE, "vision_config": {"depth": 1, "embed_dim": 32, "hidden_size": D, "num_heads": 2}},
        stack="language_model"),
    "qwen2_5_vl": gated("Qwen2_5_VLForConditionalGeneration", {
        "text_config": MROPE, "vision_config": {"depth": 1, "hidden_size": 32, "intermediate_size": 40, "num_heads": 2,
                                                "out_hidden_size": D}}, stack="language_model"),
    "qwen3_vl_text": gated("Qwen3VLTextModel", MROPE),
    "phi3": packed("Phi3ForCausalLM"),
    "glm": packed("GlmForCausalLM"),
    "glm4": packed("Glm4ForCausalLM"),
    "dinov2/swiglu": Family("Dinov2Model", VIT | {"use_swiglu_ffn": True}, "gate|up", "silu", "", "norm2", 88),
    "dinov2/gelu": plain("Dinov2Model", VIT, "gelu", "hidden_act", "norm2", d_ff=2 * D),
    "dinov2_with_registers/swiglu": Family("Dinov2WithRegistersModel", VIT | {"use_swiglu_ffn": True}, "gate|up", "silu", "",
                                           "norm2", 88),
    "dinov2_with_registers/gelu": plain("Dinov2WithRegistersModel", VIT, "gelu", "hidden_act", "norm2", d_ff=2 * D),
    "gemma": gemma("GemmaForCausalLM", key="hidden_act"),  # as transformers 5 calls it
    "gemma/legacy": gemma("GemmaForCausalLM", WIDTHS | {"hidden_act": "gelu"}, key="hidden_act"),  # means the tanh form
    "gemma2": gemma("Gemma2ForCausalLM"),
    "gemma3_text": gemma("Gemma3ForCausalLM"),
    "gemma3": gemma("Gemma3ForConditionalGeneration", {"text_config": WIDTHS, "vision_config": SIGLIP,
                                                       "mm_tokens_per_image": 1}, stack="language_model"),
    "modernbert": Family("ModernBertModel", WIDTHS | {"cls_token_id": 1, "sep_token_id": 2}, "gate|up", "gelu",
                         "hidden_activation", "mlp_norm"),
    "gpt2": plain("GPT2LMHeadModel", GPT, "gelu_new", "activation_function", "ln_2"),
    "gpt_bigcode": plain("GPTBigCodeForCausalLM", GPT, "gelu_pytorch_tanh", "activation_function", "ln_2"),
    "gptj": plain("GPTJForCausalLM", GPT | {"rotary_dim": 4}, "gelu_new", "activation_function", "ln_1"),
    "starcoder2": plain("Starcoder2ForCausalLM", WIDTHS, "gelu_pytorch_tanh", "hidden_act", POST),
    "phi": plain("PhiForCausalLM", WIDTHS, "gelu_new", "hidden_act", INPUT),
    "gpt_neox": plain("GPTNeoXForCausalLM", WIDTHS, "gelu", "hidden_act", POST),
    "falcon": plain("FalconForCausalLM", FALCON, "gelu", "activation", INPUT),
    "falcon/biases": plain("FalconForCausalLM", FALCON | {"bias": True, "parallel_attn": False},
                           "gelu", "activation", POST),
    "falcon/two_norms": plain("FalconForCausalLM", FALCON | {"new_decoder_architecture": True},
                              "gelu", "activation", "ln_mlp"),
    "bloom": plain("BloomForCausalLM", {"hidden_size": D, "n_layer": LAYERS, "n_head": 4, "vocab_size": 64}, "gelu_tanh", "",
                   POST, d_ff=4 * D, block=("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")),  # mlp adds the residual
    "mpt": plain("MptForCausalLM", {"d_model": D, "n_heads": 4, "n_layers": LAYERS, "vocab_size": 64, "max_seq_len": 64},
                 "gelu", "", "norm_2", d_ff=4 * D, block=("ffn.up_proj", "ffn.down_proj")),
    "bert": plain("BertModel", WIDTHS, "gelu", "hidden_act", block=("intermediate.dense", "output.dense")),
    "opt": plain("OPTForCausalLM", WIDTHS | {"ffn_dim": FF, "word_embed_proj_dim": D}, "relu", "activation_function",
                 "final_layer_norm", block=("fc1", "fc2")),
    "nemotron": plain("NemotronForCausalLM", WIDTHS, "relu2", "hidden_act"),
    "nemotron/biases": plain("NemotronForCausalLM", WIDTHS | {"mlp_bias": True}, "relu2", "hidden_act"),
    "arcee": plain("ArceeForCausalLM", WIDTHS, "relu2", "hidden_act", POST),
    "persimmon": plain("PersimmonForCausalLM", WIDTHS, "relu2", "hidden_act", POST),
    "deepseek_v2": gated("DeepseekV2ForCausalLM", MLA, dense=(0,)),
    "deepseek_v3": gated("DeepseekV3ForCausalLM", MLA, dense=(0,)),
    "glm4_moe": gated("Glm4MoeForCausalLM", MOE | {"first_k_dense_replace": 1, "n_routed_experts": 4}, dense=(0,)),
    "qwen2_moe": gated("Qwen2MoeForCausalLM", MOE | {"num_experts": 4, "mlp_only_layers": [1]}, dense=(1,)),
    "qwen3_moe": gated("Qwen3MoeForCausalLM", MOE | {"num_experts": 4, "mlp_only_layers": [1]}, dense=(1,)),
    "mixtral": gated("MixtralForCausalLM", MOE | {"num_local_experts": 4}, dense=()),
    "olmoe": gated("OlmoeForCausalLM", MOE | {"num_experts": 4}, dense=()),
}

# Listed, and said why they are left out: model, configuration, a word of the reason.
LEFT_OUT = {
    "bitnet": ("BitNetForCausalLM", WIDTHS, "ffn_sub_norm"),
    "apertus": ("ApertusForCausalLM", WIDTHS, "act_fn"),
    "gemma3n_text": ("Gemma3nForCausalLM", WIDTHS | {
        "num_kv_shared_layers": 0, "laurel_rank": 8, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64},
        "activation_sparsity_pattern"),
    "falcon_h1": ("FalconH1ForCausalLM", WIDTHS | {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_state": 8},
                  "mlp_multipliers"),
}


def make(model, config):
    """In double, so that every way to save it rounds once; all of its values are random, norms and biases too."""
    cls = getattr(transformers, model)
    made = cls(cls.config_class(**config)).double().eval()
    if hasattr(made.config, "num_experts_per_tok"):
        made.set_experts_implementation("eager")  # the others have no double
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in made.parameters():
            p.normal_(0, p.shape[-1] ** -0.5 if p.ndim > 1 else 1, generator=generator)
    return made
