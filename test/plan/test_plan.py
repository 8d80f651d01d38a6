# SPDX-License-Identifier: Apache-2.0
"""Widths, parameters, operations and bytes, against what was published with the models."""
import pytest
from tool import fails, objects, ok


def plan(*options):
    (found,) = objects("plan", *options)
    return found


# Name, d_model, multiplier, multiple_of, d_ff: the llama rule rounds up (llama-models models/llama3/model.py).
RULE_UP = [
    ("Llama 1 and 2 7B", 4096, None, 256, 11008), ("Llama 1 and 2 13B", 5120, None, 256, 13824),
    ("Llama 1 33B", 6656, None, 256, 17920), ("Llama 1 65B", 8192, None, 256, 22016),
    ("Llama 2 70B, Llama 3 70B", 8192, 1.3, 4096, 28672), ("Llama 3 8B", 4096, 1.3, 1024, 14336),
    ("Llama 3.1 405B", 16384, 1.2, 4096, 53248), ("Llama 3.2 1B", 2048, 1.5, 256, 8192),
    ("Llama 3.2 3B", 3072, 1.0, 256, 8192), ("TinyLlama", 2048, None, 256, 5632),
    ("third seed 768", 768, None, 256, 2048), ("third seed 1024", 1024, None, 256, 2816),
    ("SmolLM2 135M", 576, None, 256, 1536), ("SmolLM2 360M", 960, None, 256, 2560),
]
# d_model, up, nearest: where the two rules differ at a multiple of 256.
DIFFERENT = [(512, 1536, 1280), (896, 2560, 2304), (1280, 3584, 3328), (2048, 5632, 5376), (3584, 9728, 9472),
             (5120, 13824, 13568), (6656, 17920, 17664), (8192, 22016, 21760)]
# Name, d_model, d_ff of released gated models whose width follows no rule: counted as given.
GIVEN = [
    ("Gemma 2B", 2048, 16384), ("Gemma 7B", 3072, 24576), ("Gemma 2 2B", 2304, 9216), ("Gemma 2 9B", 3584, 14336),
    ("Gemma 2 27B", 4608, 36864), ("Gemma 3 270M", 640, 2048), ("Gemma 3 1B", 1152, 6912), ("Gemma 3 4B", 2560, 10240),
    ("Gemma 3 12B", 3840, 15360), ("Gemma 3 27B", 5376, 21504), ("Qwen2.5 0.5B", 896, 4864), ("Qwen2.5 1.5B", 1536, 8960),
    ("Qwen2.5 3B", 2048, 11008), ("Qwen2.5 7B", 3584, 18944), ("Qwen2.5 14B", 5120, 13824), ("Qwen2.5 32B", 5120, 27648),
    ("Qwen2.5 72B", 8192, 29568), ("Qwen3 0.6B", 1024, 3072), ("Qwen3 4B", 2560, 9728), ("Qwen3 8B", 4096, 12288),
    ("Qwen3 32B", 5120, 25600), ("Qwen3 30B-A3B expert", 2048, 768), ("Mistral 7B", 4096, 14336),
    ("Mixtral 8x22B", 6144, 16384), ("Mistral Large", 12288, 28672), ("Phi-3 mini", 3072, 8192), ("Phi-4", 5120, 17920),
    ("SmolLM2 1.7B", 2048, 8192), ("StableLM", 2560, 6912), ("gpt-oss", 2880, 2880), ("DeepSeek-V2-Lite expert", 2048, 1408),
    ("Gemma 4 expert", 2816, 704), ("Kimi K3 expert", 3584, 3072), ("Qwen2.5-VL vision", 1280, 3420),
    ("unrounded", 1024, 2730), ("open_llama_3b", 3200, 8640), ("Salamandra 2B", 2048, 5440),
    ("Falcon3 7B", 3072, 23040), ("OLMo 1B", 2048, 8192),
]


@pytest.mark.parametrize("name, d, multiplier, multiple, d_ff", RULE_UP, ids=[r[0] for r in RULE_UP])
def test_published_widths(name, d, multiplier, multiple, d_ff):
    factor = ["--multiplier", multiplier] if multiplier else []
    found = plan("--d-model", d, "--rule", "up", "--multiple-of", multiple, *factor)
    h = 8 * d // 3 if multiplier is None else int(multiplier * (8 * d // 3))
    assert found["d_ff"] == d_ff == -(-h // multiple) * multiple
    assert found["parameters"] == 3 * d * d_ff and found["flops_per_token"] == 6 * d * d_ff


def test_lille_130m_rounds_to_the_nearest():
    assert plan("--d-model", 640, "--rule", "nearest")["d_ff"] == 1792
    assert plan("--d-model", 768, "--rule", "nearest")["d_ff"] == 2048


@pytest.mark.parametrize("d, up, nearest", DIFFERENT)
def test_the_two_rules(d, up, nearest):
    assert plan("--d-model", d)["d_ff"] == plan("--d-model", d, "--rule", "up")["d_ff"] == up
    assert plan("--d-model", d, "--rule", "nearest")["d_ff"] == nearest


def test_a_tie_goes_up():
    """int(8 d / 3) = 128 lies between 0 and 256."""
    assert plan("--d-model", 48, "--rule", "nearest")["d_ff"] == 256


@pytest.mark.parametrize("d, d_ff", [(1024, 2730), (4096, 10922), (1, 2), (2, 5), (3, 8)])
def test_no_rounding(d, d_ff):
    assert plan("--d-model", d, "--rule", "none")["d_ff"] == d_ff


@pytest.mark.parametrize("name, d, d_ff", GIVEN, ids=[g[0] for g in GIVEN])
def test_given_widths(name, d, d_ff):
    found = plan("--d-model", d, "--d-ff", d_ff)
    assert (found["d_ff"], found["parameters"], found["rule"]) == (d_ff, 3 * d * d_ff, "as given")
    for kind, block, size in (("f32", 1, 4), ("bf16", 1, 2), ("f16", 1, 2), ("q8_0", 32, 34), ("q4_k", 256, 144)):
        whole = d % block == d_ff % block == 0
        assert found.get(f"bytes_{kind}") == (3 * d * d_ff // block * size if whole else None)


def test_C184_the_model_rounds_up_and_not_to_the_nearest():
    assert plan("--d-model", 5120, "--multiple-of", 256)["d_ff"] == 13824
    assert plan("--d-model", 5120, "--multiple-of", 256, "--rule", "nearest")["d_ff"] == 13568


def test_C185_widths_of_the_first_llamas():
    assert [plan("--d-model", d)["d_ff"] for d in (4096, 5120, 6656, 8192)] == [11008, 13824, 17920, 22016]


@pytest.mark.parametrize("d_ff", [11008, 28672])
def test_C187_a_width_is_never_the_packed_one(d_ff):
    found = plan("--d-model", 4096, "--d-ff", d_ff)
    assert found["d_ff"] == d_ff and found["packed_rows"] == 2 * d_ff
    said = ok("plan", "--d-model", 4096, "--d-ff", d_ff)
    assert "d_ff is the width of gate and of up, each on its own" in said
    assert f"a packed gate|up weight has 2 x {d_ff} = {2 * d_ff} rows." in said


def test_C190_every_gated_unit_counts_three_products():
    for name in ("swiglu", "geglu", "reglu", "glu", "bilinear", "gpt_oss"):
        found = plan("--d-model", 4096, "--d-ff", 11008, "--activation", name)
        assert found["flops_per_token"] == 270_532_608 and found["gated"] and found["matrices"] == 3
    found = plan("--d-model", 4096, "--d-ff", 11008, "--activation", "gelu")
    assert found["flops_per_token"] == 180_355_072 and not found["gated"] and found["matrices"] == 2


def test_C191_parameters_of_a_model():
    found = plan("--d-model", 4096, "--d-ff", 11008, "--layers", 32)
    assert found["parameters"] == 135_266_304 and found["total_parameters"] == 4_328_521_728
    said = ok("plan", "--d-model", 4096, "--d-ff", 11008, "--layers", 32)
    assert "135266304" in said and "4328521728" in said


def test_compare_as_the_third_seed():
    """Parity at 768 is exact; at 1024 rounding makes the gated block larger."""
    found = {b["activation"]: b for b in objects("plan", "--d-model", 768, "--compare")}
    assert list(found) == ["relu", "gelu", "swiglu", "geglu"]
    assert [b["d_ff"] for b in found.values()] == [3072, 3072, 2048, 2048]
    assert {b["parameters"] for b in found.values()} == {4_718_592}
    found = [(b["d_ff"], b["parameters"]) for b in objects("plan", "--d-model", 1024, "--compare")]
    assert found == [(4096, 8_388_608)] * 2 + [(2816, 8_650_752)] * 2
    rows = [line.split() for line in ok("plan", "--d-model", 768, "--compare").splitlines()]
    assert [r[:6] for r in rows if r[:1] == ["swiglu"]][0] == ["swiglu", "3,", "gated", "2048", "4718592", "4.72"]


def test_bytes_kept_for_the_backward_pass():
    d, f = 512, 1536
    gated, plain = plan("--d-model", d), plan("--d-model", d, "--activation", "relu")
    assert [gated[k] for k in ("kept_recompute", "kept_products", "kept_eager")] == [d, d + 2 * f, d + 4 * f]
    assert [plain[k] for k in ("kept_recompute", "kept_products", "kept_eager")] == [d, d + 4 * d, d + 8 * d]
    rows = [line.split()[-3:] for line in ok("plan", "--d-model", d).splitlines() if line.startswith("swiglu  ")]
    assert rows[-3:] == [[str(n), str(4 * n), str(2 * n)] for n in (d, d + 2 * f, d + 4 * f)]


@pytest.mark.parametrize("name, saying", [
    ("silu", "the gated block with it is swiglu"), ("swish", "the gated block with it is swiglu"),
    ("gelu_new", "geglu_tanh"), ("swiglo", "did you mean swiglu"), ("", "''"), ("softmax", "unknown"),
])
def test_unknown_activations(name, saying):
    fails("plan", "--d-model", 64, "--activation", name, saying=saying)


@pytest.mark.parametrize("options, saying", [
    ([], "--d-model is expected"), (["--d-model", 0], "outside 1 to"), (["--d-model", -1], "decimal number"),
    (["--d-model", 2**64], "2^64"), (["--d-model", 64, "--d-ff", 0], "outside 1 to"),
    (["--d-model", 64, "--d-ff", 128, "--rule", "up"], "no rule applies"),
    (["--d-model", 64, "--d-ff", 128, "--multiplier", 1.3], "no rule applies"),
    (["--d-model", 64, "--rule", "down"], "one of none, up, nearest"),
    (["--d-model", 64, "--multiple-of", 0], "outside 1 to"),
    (["--d-model", 64, "--multiplier", "nan"], "above 0"), (["--d-model", 64, "--multiplier", "1.3x"], "above 0"),
    *[(["--d-model", 64, "--multiplier", form], "above 0") for form in (" 1", "+1", "0x10", "")],
    (["--d-model", 64, "--multiplier", 0], "above 0"), (["--d-model", 64, "--multiplier", -2], "above 0"),
    (["--d-model", 64, "--multiplier", 1e300], "exceeds"), (["--d-model", 2**40], "exceeds"),
    (["--d-model", 2**39, "--d-ff", 2**39], "exceed 2^64"),
    (["--d-model", 2**30, "--d-ff", 2**30, "--layers", 1000], "totals exceed 2^64"),
    (["--d-model", 8, "--rule", "nearest"], "width of 0"),
    (["--d-model", 64, "--activation", "relu", "--rule", "up"], "gated"),
    (["--d-model", 64, "--compare", "--activation", "glu"], "not used"), (["--d-model", 64, "extra"], "unexpected operand"),
])
def test_usage(options, saying):
    fails("plan", *options, saying=saying)
