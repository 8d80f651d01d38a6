#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/hf-families.md: what swiglu.patch does with every model type of the installed transformers, found by making a
small model of each, patching it and comparing every replaced block with eager.

    SWIGLU_LIBRARY=build/libswiglu.so PYTHONPATH=python .venv-torch/bin/python tools/hf_families.py [TYPE...]

With names of model types it prints their rows and writes nothing. Takes about ten minutes."""

from __future__ import annotations

import collections
import contextlib
import logging
import multiprocessing
import os
import pathlib
import re
import sys
import warnings
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")

import swiglu
import torch
import transformers
from swiglu.dropin.classes import Patched
from swiglu.dropin.inside import First, Second
from transformers.models.auto import configuration_auto, modeling_auto

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "hf-families.md"
SECONDS = 60  # for one model type

# Families that people train and serve as text, sound and image models; the summary counts these.
LISTED = """
llama mistral ministral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 gpt2 gpt_neo gpt_neox gptj gpt_bigcode starcoder2 olmo
olmo2 olmo3 granite cohere cohere2 glm glm4 smollm3 stablelm helium seed_oss exaone4 ernie4_5 hunyuan_v1_dense nemotron arcee
persimmon falcon falcon_h1 bloom mpt opt xglm codegen biogpt bitnet apertus lfm2 vaultgemma mixtral bert roberta xlm-roberta
camembert electra deberta deberta-v2 distilbert albert mpnet modernbert megatron-bert ernie esm t5 mt5 umt5 bart mbart pegasus
marian m2m_100 blenderbot whisper wav2vec2 hubert vit deit beit dinov2 clip siglip qwen2_vl
""".split()

# (pattern of an attribute of a configuration, small value); the first that fits decides.
SMALL = [
    (r"vocab_size$|.*_vocab_size$|vocab_size_.*", 128),
    (r"n(um)?_(kv|key_value)_heads|multi_query_group_num", 2),
    (r".*(num|n)_(attention_|attn_)?heads?$|n_heads?|.*attention_heads$|heads", 4),
    (r"(qk_|v_|kv_)?(rope_|nope_)?head_dim|head_size|d_kv|attention_head_size|global_head_dim", 16),
    (r"(n|num)_layers?$|num_hidden_layers|(encoder|decoder)_layers|depth|num_.*_layers$", 2),
    (r".*(intermediate_size|ffn_dim|ffn_hidden_size|d_ff|n_inner|inner_dim|hidden_dim|feedforward_dim)$|dim_feedforward", 128),
    (r"moe_intermediate_size|.*expert.*size", 32),
    (r"(num|n)_(local_|routed_)?experts$", 4),
    (r"(num_experts_per_tok|top_k|moe_topk|n_group|topk_group)", 2),
    (r".*(hidden_size|d_model|n_embd|embed_dim|hidden_dim|projection_dim|embedding_size|dim|d_embed|width)$", 64),
    (r"(q|kv|o)_lora_rank", 16),
    (r"max_position_embeddings|n_positions|max_sequence_length|max_seq_len(gth)?|n_ctx", 64),
    (r"image_size", 32),
    (r"patch_size", 8),
]  # fmt: skip


def shrink(config: Any, seen: set[int]) -> None:
    """Small values in a configuration and in those below it."""
    if id(config) in seen:
        return
    seen.add(id(config))
    for name, value in list(vars(config).items()):
        if isinstance(value, transformers.PretrainedConfig):
            shrink(value, seen)
        elif name in ("pad_token_id", "bos_token_id", "eos_token_id") and isinstance(value, int) and value > 3:
            setattr(config, name, {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}[name])
        elif name == "vocab_size" and value is None:
            config.vocab_size = 128
        elif type(value) is int:
            small = next((n for pattern, n in SMALL if re.fullmatch(pattern, name)), None)
            if small is not None and value > small:
                with contextlib.suppress(Exception):  # some are computed
                    setattr(config, name, small)
    layers = getattr(config, "num_hidden_layers", None)
    for name in ("layer_types", "mlp_layer_types", "no_rope_layers", "layers_block_type"):
        if isinstance(getattr(config, name, None), list) and isinstance(layers, int):
            setattr(config, name, getattr(config, name)[:layers])


def make(kind: str) -> Any:
    """A small model of a type; the full sizes, without memory and few layers, where small ones do not fit together."""
    config_class = configuration_auto.CONFIG_MAPPING[kind]
    model_class = modeling_auto.MODEL_MAPPING[config_class]
    model_class = model_class[0] if isinstance(model_class, tuple) else model_class
    errors = []
    for way in (_small, _by_names, _few_layers):
        try:
            torch.manual_seed(0)
            return way(config_class, model_class)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
    raise RuntimeError(errors[0])


def _small(config_class: Any, model_class: Any) -> Any:
    config = config_class()
    shrink(config, set())
    if sum(p.numel() for p in _on_meta(model_class, config).parameters()) > 60e6:
        raise ValueError("its model stays large")
    return model_class(config).float().eval()


def _by_names(config_class: Any, model_class: Any) -> Any:
    """Where a configuration computes some of its values when it is made."""
    names = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 128, "max_position_embeddings": 64, "pad_token_id": 0,
             "bos_token_id": 1, "eos_token_id": 2, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_state": 8}  # fmt: skip
    return model_class(config_class(**names)).float().eval()


def _on_meta(model_class: Any, config: Any) -> Any:
    with torch.device("meta"):
        return model_class(config)


def _few_layers(config_class: Any, model_class: Any) -> Any:
    config = config_class()
    if sum(p.numel() for p in _on_meta(model_class, config).parameters()) > 150e6:
        raise ValueError("its model stays large")
    return model_class(config).float().eval()


def error_of(entry: Any, model: Any) -> float:
    """|patched - eager| / |eager| of one block, on random x."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 5, entry.d_in, generator=generator)
    modules = dict(model.named_modules())
    with torch.no_grad():
        if entry.name in modules and isinstance(modules[entry.name], Patched):
            block: Any = modules[entry.name]
            ours, eager = block(x), type(block)._swiglu_original.forward(block, x)
        else:
            first, second, act = children(modules, entry)
            ours = second(act(first(x)))
            plain = type(first)._swiglu_original.forward(first, x)
            eager = type(second)._swiglu_original.forward(second, act(plain))
    return float((ours - eager).norm() / eager.norm()) if float(eager.norm()) else float((ours - eager).abs().max())


def children(modules: Any, entry: Any) -> tuple[Any, Any, Any]:
    """The two linears and the activation of a block inside of a larger module."""
    recipe = entry.state.recipe
    head, _, _ = entry.name.rpartition(f"{recipe.up}+{recipe.down}")
    host = head.rstrip(".")
    at = lambda path: modules[f"{host}.{path}" if host else path]  # noqa: E731
    first, second = at(recipe.up), at(recipe.down)
    assert isinstance(first, First) and isinstance(second, Second)
    functions = {"relu": torch.relu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu,
                 "sigmoid": torch.sigmoid, "gelu_tanh": lambda h: torch.nn.functional.gelu(h, approximate="tanh")}  # fmt: skip
    return first, second, at(recipe.act) if recipe.act else functions[recipe.activation]


def row(kind: str) -> dict[str, Any]:
    """What happens to a model type."""
    try:
        model = make(kind)
    except Exception as error:
        return {"kind": kind, "failed": f"no small model of it could be made: {error}"}
    report = swiglu.patch(model)
    forms = collections.Counter((e.cls, e.layout, e.activation.split("(")[0]) for e in report.replaced)
    left: dict[str, str] = {}
    for entry in report.left:
        left.setdefault(entry.cls, entry.reason or "")
    error = max((error_of(entry, model) for entry in report.replaced), default=0.0)
    return {"kind": kind, "forms": forms, "left": left, "error": error, "fallbacks": report.fallbacks}


def child(kind: str, queue: Any) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    sys.stderr = open(os.devnull, "w")
    queue.put(row(kind))


def rows(kinds: list[str]) -> list[dict[str, Any]]:
    """Each in a process of its own, a few at once."""
    context = multiprocessing.get_context("fork")
    results: dict[str, dict[str, Any]] = {}
    waiting, running = list(kinds), {}
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            kind = waiting.pop(0)
            queue = context.SimpleQueue()
            process = context.Process(target=child, args=(kind, queue))
            process.start()
            running[kind] = process, queue
        for kind, (process, queue) in list(running.items()):
            process.join(SECONDS if len(running) == 1 else 0.05)
            if not queue.empty():
                results[kind] = queue.get()
                process.join()
            elif process.is_alive() and len(running) > 1:
                continue
            else:
                process.kill()
                results[kind] = {"kind": kind, "failed": "its process ended early or took too long"}
            del running[kind]
    return [results[kind] for kind in kinds]


def line(r: dict[str, Any]) -> str:
    if "failed" in r:
        return f"| {r['kind']} | not tried | | {text(r['failed'])} |"
    forms = ", ".join(sorted({f"{cls} ({layout}, {activation})" for cls, layout, activation in r["forms"]}))
    left = "; ".join(f"{cls}: {reason}" for cls, reason in r["left"].items())
    error = f"{r['error']:.1e}" if r["forms"] else ""
    return f"| {r['kind']} | {forms or ('left' if left else 'no such block')} | {error} | {text(left)} |"


def text(reason: str) -> str:
    short = re.sub(r"\s+", " ", reason).replace("|", "\\|").replace("<", "&lt;")
    return short if len(short) <= 240 else short[:237] + "..."


def page(results: list[dict[str, Any]]) -> str:
    by_kind = {r["kind"]: r for r in results}
    listed = [by_kind[kind] for kind in LISTED if kind in by_kind]
    taken = [r for r in listed if r.get("forms")]
    tried = [r for r in results if "failed" not in r]
    some = [r for r in tried if r["forms"]]
    worst = max((r["error"] for r in some), default=0.0)
    head = f"""# Model types of transformers

Written by `tools/hf_families.py`, with transformers {transformers.__version__} and PyTorch {torch.__version__}: it makes a small
random float32 model of each type, patches it, and compares every replaced block with eager on random x. "error" is the largest
|patched - eager| / |eager| of a block. What is left alone stands in the last column with its reason.

Of {len(listed)} families that people train and serve, {len(taken)} are taken. Of all {len(results)} model types, {len(tried)}
could be made small; in {len(some)} of them blocks are replaced, with an error of at most {worst:.1e}.

"""
    columns = "| model type | replaced | error | left alone, and why |\n|---|---|---|---|\n"
    first = [line(r) for r in listed]
    rest = [line(r) for r in results if r["kind"] not in LISTED]
    return head + columns + "\n".join(first) + "\n\n## All others\n\n" + columns + "\n".join(rest) + "\n"


def main() -> int:
    kinds = sys.argv[1:]
    if kinds:
        for r in rows(kinds):
            print(line(r))
        return 0
    known = set(modeling_auto.MODEL_MAPPING_NAMES)
    results = rows([*(kind for kind in LISTED if kind in known), *sorted(known - set(LISTED))])
    PAGE.write_text(page(results))
    print(f"{PAGE.relative_to(ROOT)}: {sum(bool(r.get('forms')) for r in results)} of {len(results)} types have replaced blocks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
