# SPDX-License-Identifier: Apache-2.0
"""Which modules are taken for a block: those whose own forward says so."""
import pytest
import swiglu
import torch
import torch.nn.functional as F
from families import LAYERS, WIDTHS, blocks, make, tokens
from swiglu.dropin.proof import prove
from swiglu.dropin.trace import NotProven
from torch import nn
from transformers.activations import ACT2FN


class Base(nn.Module):
    def __init__(self, d=8, f=12, out=None, bias=False):
        super().__init__()
        self.a, self.b = nn.Linear(d, f, bias=bias), nn.Linear(d, f, bias=bias)
        self.c = nn.Linear(f, out or d, bias=bias)
        self.scale, self.on = 0.5, False


class Plain(Base):
    def forward(self, x):
        return self.c(F.silu(self.a(x)) * self.b(x))


class Swapped(Base):
    def forward(self, x):
        return self.c(self.a(x) * F.gelu(self.b(x), approximate="tanh"))


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.both, self.down = nn.Linear(8, 24), nn.Linear(12, 8)

    def forward(self, x):
        value, gate = torch.chunk(self.both(x), 2, dim=-1)
        return self.down(torch.mul(F.relu(gate), value))


class Branch(Base):
    def forward(self, x):
        h = F.silu(self.a(x)) * self.b(x)
        return self.c(h * self.scale if self.on else h)


@pytest.mark.parametrize(
    "module, layout, activation",
    [
        (Plain(), "separate", "silu"),
        (Plain(out=5, bias=True), "separate", "silu"),
        (Swapped(), "separate", "gelu_tanh"),
        (Packed(), "up_gate", "relu"),
        (Branch(), "separate", "silu"),
    ],
)
def test_a_stranger_s_block(module, layout, activation):
    """C158: widths come from the tensors, whatever the class is called and however it is made."""
    x = torch.randn(3, 8)
    holder = nn.Sequential(module).eval()
    with torch.no_grad():
        eager = holder(x)
        report = swiglu.patch(holder)
        assert [(e.layout, e.activation) for e in report.replaced] == [(layout, activation)]
        assert torch.allclose(holder(x), eager, atol=1e-6) and report.fallbacks == 0


class Residual(Base):
    def forward(self, x):
        return x + self.c(F.silu(self.a(x)) * self.b(x))


class Twice(Base):
    def forward(self, x):
        return self.c(F.silu(self.a(x)) * F.silu(self.b(x)))


class Looks(Base):
    def forward(self, x):
        return self.c(F.silu(self.a(x)) * self.b(x)) if x.sum() > 0 else x


class Weights(Base):
    def forward(self, x):
        return self.c(F.silu(F.linear(x, self.a.weight)) * self.b(x))


class Counts(Base):
    def forward(self, x):
        self.calls = 1
        return self.c(F.silu(self.a(x)) * self.b(x))


class Appends(Base):
    def __init__(self):
        super().__init__()
        self.log = []

    def forward(self, x):
        self.log.append(x)
        return self.c(F.silu(self.a(x)) * self.b(x))


class NoGrad(Base):
    @torch.no_grad()
    def forward(self, x):
        return self.c(F.silu(self.a(x)) * self.b(x))


class NoAutocast(Base):
    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return self.c(F.silu(self.a(x)) * self.b(x))


class Same(Base):
    def forward(self, x):
        h = self.a(x)
        return self.c(F.silu(h) * h)


class OtherAxis(Packed):
    def forward(self, x):
        gate, value = self.both(x).chunk(2, dim=0)
        return self.down(F.silu(gate) * value)


@pytest.mark.parametrize(
    "cls, reason",
    [
        (Residual, r"computes x \+ c\(silu\(a\(x\)\) \* b\(x\)\), which is not a block"),
        (Twice, "is not a block"),
        (Looks, r"depends on the values of sum\(x\)"),
        (Weights, r"linear\(x, a.weight\)"),
        (Counts, "sets calls"),
        (Appends, "cannot be followed .*append"),
        (NoGrad, "switches gradients or autocast off"),
        (NoAutocast, "switches gradients or autocast off"),
        (Same, "is not a block"),
        (OtherAxis, "chunk"),
    ],
)
def test_what_is_no_block_is_left_alone(cls, reason):
    holder = nn.ModuleDict({"mlp": cls()})
    report = swiglu.patch(holder)
    assert not report.replaced and type(holder["mlp"]) is cls
    with pytest.raises(NotProven, match=reason):
        prove(holder["mlp"])
    assert [e.name for e in report.left] == ["mlp"] and report.left[0].reason in str(report)


def test_a_branch_taken_later_falls_back():
    """The attributes that the forward read are compared at each call."""
    holder, x = nn.Sequential(Branch(), nn.Identity()).eval(), torch.randn(3, 8)
    report = swiglu.patch(holder)
    with torch.no_grad():
        holder(x)
        assert report.fallbacks == 0
        holder[0].on = True
        y = holder(x)
        assert report.replaced[0].fallbacks == {"on is not what it was when the module was patched": 1}
        swiglu.restore(holder)
        assert torch.equal(holder(x), y)


@pytest.mark.parametrize(
    "name", ["silu", "swish", "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "relu2", "quick_gelu", "gelu_10"]
)
def test_c157_activations_of_the_config(name):
    model = make("llama", hidden_act=name)
    with torch.no_grad():
        eager = model(tokens()).logits
        report = swiglu.patch(model)
        assert len(report.replaced) == LAYERS
        assert torch.allclose(model(tokens()).logits, eager, atol=1e-6)


@pytest.mark.parametrize("name", ["mish", "hardswish", "tanh", "laplace", "leaky_relu", "relu6"])
def test_c157_an_unknown_activation_is_refused(name):
    report = swiglu.patch(make("llama", hidden_act=name))
    assert not report.replaced and len(report.left) == LAYERS
    assert "act_fn" in report.left[0].reason and "not a block" in report.left[0].reason
    with pytest.raises(KeyError):
        ACT2FN["unknown"]


def test_c158_layers_of_other_widths():
    model = make("llama")
    model.model.layers[1].mlp.gate_proj = nn.Linear(64, 352, bias=False)
    model.model.layers[1].mlp.up_proj = nn.Linear(64, 352, bias=False)
    model.model.layers[1].mlp.down_proj = nn.Linear(352, 64, bias=False)
    with torch.no_grad():
        eager = model(tokens()).logits
        report = swiglu.patch(model)
        assert [e.d_ff for e in report.replaced] == [176, 352]
        assert torch.allclose(model(tokens()).logits, eager, atol=1e-6)


def test_c160_packed_bytes_are_no_weights():
    model = make("llama")
    child = model.model.layers[0].mlp.up_proj
    child.weight = nn.Parameter(torch.zeros(64 * 176 // 2, 1, dtype=torch.uint8), requires_grad=False)
    report = swiglu.patch(model)
    assert [e.name for e in report.left] == ["model.layers.0.mlp"] and len(report.replaced) == LAYERS - 1
    assert "uint8" in report.left[0].reason


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda m: m.double(), "float64"),
        (lambda m: m.to("meta"), "meta tensors"),
        (lambda m: m.up_proj.half(), "float16 and float32"),
        (lambda m: setattr(m, "up_proj", nn.Linear(64, 175)), "shapes"),
        (lambda m: setattr(m, "down_proj", nn.Linear(175, 64)), "176 outputs and its last 175 inputs"),
        (lambda m: setattr(m, "forward", lambda x: x), "replaced on the instance"),
    ],
)
def test_tensors_that_do_not_fit(change, reason):
    model = make("llama")
    change(model.model.layers[0].mlp)
    report = swiglu.patch(model)
    assert [e.name for e in report.left] == ["model.layers.0.mlp"] and reason in report.left[0].reason


def test_dry_run_changes_nothing_and_tells_the_bytes():
    model = make("phi3")
    classes = [type(m) for m in model.modules()]
    report = swiglu.patch(model, dry_run=True)
    assert [type(m) for m in model.modules()] == classes and not any(hasattr(m, "_swiglu") for m in model.modules())
    weights = sum(p.numel() * 4 for _, m in blocks(model) for p in m.parameters())
    assert report.bytes_before == weights and 2 * weights <= report.bytes_after <= 2.3 * weights
    assert "would be replaced" in str(report)


def test_mixture_of_experts_is_listed():
    import transformers

    config = transformers.Qwen3MoeConfig(
        hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2,
        num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16, vocab_size=64,
    )  # fmt: skip
    report = swiglu.patch(transformers.Qwen3MoeForCausalLM(config))
    assert not report.replaced and report.left and all(e.reason for e in report.left)


OTHERS = {
    "Olmo2": "silu", "Granite": "silu", "Cohere": "silu", "Glm4": "silu", "SmolLM3": "silu", "Lfm2": "silu",
    "Phi": "gelu_tanh", "GPTBigCode": "gelu_tanh", "GPTNeoX": "gelu", "Nemotron": "relu2", "VaultGemma": "gelu_tanh",
    "Falcon": "gelu", "ModernBertDecoder": "gelu", "BitNet": "ffn_sub_norm is a BitNetRMSNorm",
}  # fmt: skip


@pytest.mark.parametrize("family, found", OTHERS.items(), ids=OTHERS)
def test_other_families_by_their_code(family, found):
    """Nobody told the package about these."""
    import transformers

    config = getattr(transformers, f"{family}Config")
    if family == "GPTBigCode":
        config = config(vocab_size=128, n_embd=64, n_layer=2, n_head=4, n_positions=64)
    else:
        config = config(**WIDTHS)
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        eager = model(tokens()).logits
        report = swiglu.patch(model)
        assert torch.allclose(model(tokens()).logits, eager, rtol=0, atol=2e-6 * float(eager.abs().max()))
    assert report.fallbacks == 0
    if " " in found:
        assert not report.replaced and len(report.left) == 2 and all(found in entry.reason for entry in report.left)
    else:
        assert [entry.activation for entry in report.replaced] == [found] * 2 and not report.left


def test_wrong_arguments():
    model = make("llama")
    with pytest.raises(TypeError, match="torch.nn.Module"):
        swiglu.patch("model")
    with pytest.raises(ValueError, match="gate_proj has rows of 64 values; q4_k needs a multiple of 256"):
        swiglu.patch(model, weights="q4_k")
    for unknown in ("int8", "bogus", "f32"):
        with pytest.raises(ValueError, match=f"weights '{unknown}': unknown; 'keep' and q4_0, q4_1, "):
            swiglu.patch(model, weights=unknown)
    with pytest.raises(ValueError, match="policy 'all'"):
        swiglu.patch(model, policy="all")
    assert all(type(m).__module__.startswith("transformers") for _, m in blocks(model))
