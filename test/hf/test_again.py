# SPDX-License-Identifier: Apache-2.0
"""What is done to a model after it was patched: noticed, refused by name, or brought back."""
import copy

import pytest
import swiglu
import torch
from families import LAYERS, blocks, make, run, tokens
from swiglu.dropin import FreedWeightError
from torch import nn
from torch.nn.utils import prune


class MLP(nn.Module):
    def __init__(self, d=8, f=24, bias=True):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(d, f, bias), nn.Linear(d, f, bias), nn.Linear(f, d, bias)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(MLP() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return x


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def x():
    return torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


def evaluate(net, x):
    with torch.no_grad():
        return net(x)


def state_of(net):
    return {key: value.clone() for key, value in net.state_dict().items()}


def set_weight(mlp):
    mlp.up.weight = nn.Parameter(torch.zeros(24, 8))


def set_child(mlp):
    mlp.up = nn.Linear(8, 48)


def assign_state(mlp):
    mlp.up.load_state_dict({"weight": torch.zeros(24, 8), "bias": torch.zeros(24)}, assign=True)


def no_bias(mlp):
    mlp.up.bias = None


@pytest.mark.parametrize("change", [set_weight, set_child, assign_state, no_bias])
def test_a_freed_block_does_not_compute_with_what_was_replaced(net, x, change):
    swiglu.patch(net, free=True)
    change(net.layers[0])
    with pytest.raises(FreedWeightError, match=r"up\.(weight|bias) was replaced"):
        evaluate(net, x)


def test_a_freed_block_refuses_functional_call_and_tracing(net, x):
    swiglu.patch(net, free=True)
    with pytest.raises(FreedWeightError, match=r"up\.weight was replaced"), torch.no_grad():
        torch.func.functional_call(net, {"layers.0.up.weight": torch.zeros(24, 8)}, (x,))
    with pytest.raises(FreedWeightError), torch.no_grad():
        torch.jit.trace(net, (x,), check_trace=False)


@pytest.mark.parametrize("use", [
    lambda m: m.up.bias.fill_(7), lambda m: nn.init.zeros_(m.up.bias), lambda m: torch.optim.SGD([m.up.bias], lr=1)])
def test_biases_are_freed_too(net, use):
    swiglu.patch(net, free=True)
    with pytest.raises(FreedWeightError):
        use(net.layers[0])


def test_a_freed_forward_with_gradients_is_refused(net, x):
    swiglu.patch(net, free=True)
    with pytest.raises(FreedWeightError, match="gradients"):
        net(x)  # x has none, the weights would
    net.requires_grad_(False)
    assert not net(x).requires_grad


def test_adapters_on_a_freed_model_are_undone_by_restore(net, x):
    peft = pytest.importorskip("peft")
    before, expected = state_of(net), evaluate(net, x)
    swiglu.patch(net, free=True)
    adapted = peft.get_peft_model(net, peft.LoraConfig(r=2, target_modules=["up"]))
    with pytest.raises(FreedWeightError), torch.no_grad():
        adapted(x)
    with pytest.raises(FreedWeightError):
        prune.l1_unstructured(net.layers[1].down, "weight", amount=0.5)
    net.layers[1].gate = nn.Identity()
    net.state_dict()
    assert swiglu.restore(net) == 2
    after = state_of(net)
    values = {key: value for key, value in before.items() if "layers.1.gate" not in key}
    found = {key.replace("base_layer.", "").replace("weight_orig", "weight"): value for key, value in after.items()}
    assert all(torch.equal(found[key], value) for key, value in values.items())
    assert evaluate(copy.deepcopy(Net().eval()), x).shape == expected.shape


def test_a_shared_linear_is_not_freed(net, x):
    net.layers[1].up = net.layers[0].up
    expected = evaluate(net, x)
    report = swiglu.patch(net, free=True)
    assert [entry.kept for entry in report.replaced] == ["its weights are used by another module too"] * 2
    assert torch.allclose(evaluate(net, x), expected, atol=1e-6)


@pytest.mark.parametrize("change, reason", [
    (lambda m: m.up.register_forward_hook(lambda *_: None), "up has hooks"),
    (lambda m: m.double(), "float64"),
    (lambda m: setattr(m, "up", nn.Linear(8, 23).eval()), "shapes"),
    (lambda m: setattr(m, "up", None), "up is a NoneType"),
    (lambda m: prune.l1_unstructured(m.up, "weight", amount=0.5), "up has hooks"),
])
def test_patching_again_with_free_looks_again(net, x, change, reason):
    swiglu.patch(net)
    change(net.layers[0])
    report = swiglu.patch(net, free=True)
    first, second = report.replaced
    assert reason in first.kept and not first.freed and second.freed and second.kept is None
    assert reason in str(report)


def test_a_policy_stays_until_another_is_named(net):
    swiglu.patch(net, policy="keep")
    assert swiglu.patch(net).replaced[0].state.policy == "keep"
    assert swiglu.patch(net, policy="recompute").replaced[0].state.policy == "recompute"
    for wrong in ("some", ["keep"], 3):
        with pytest.raises(ValueError, match="policy .* is not one of recompute, keep"):
            swiglu.patch(net, policy=wrong)


def test_patched_leaves_what_was_patched_as_it_was(net, x):
    swiglu.patch(net.layers[0], policy="keep")
    before, expected = state_of(net), evaluate(net, x)
    with swiglu.patched(net, free=True, policy="recompute") as report:
        assert all(entry.freed for entry in report.replaced)
    first, second = net.layers
    assert first._swiglu.policy == "keep" and first._swiglu.freed is None and type(second) is MLP
    assert all(type(p) is nn.Parameter and torch.equal(p, before[name]) for name, p in net.named_parameters())
    assert torch.allclose(evaluate(net, x), expected, atol=1e-6)


def test_restored_under_inference_mode_trains(net, x):
    with torch.inference_mode():
        swiglu.patch(net, free=True)
        swiglu.restore(net)
    net(x).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_a_default_device_does_not_matter(net, x):
    before = state_of(net)
    with torch.device("meta"):
        swiglu.patch(net, free=True)
        state = net.state_dict()
        swiglu.restore(net)
    assert all(torch.equal(state[key], value) and torch.equal(net.state_dict()[key], value) for key, value in before.items())


def test_dropout_has_a_mode_and_a_life_of_its_own():
    model = make("gpt2", resid_pdrop=0.5)
    expected = run(model)
    report = swiglu.patch(model)
    drops = [mlp.dropout for _, mlp in blocks(model)]
    for drop in drops:
        drop.train()  # Monte Carlo dropout
    assert not torch.equal(run(model), run(model))
    for drop in drops:
        drop.eval()
    seen = []
    drops[0].register_forward_hook(lambda *_: seen.append(1))
    assert torch.allclose(run(model), expected, atol=1e-5) and seen == [1]
    blocks(model)[1][1].dropout = nn.Threshold(1e9, 0.0).eval()
    swiglu.patch(model, free=True)
    ours = run(model)
    swiglu.restore(model)
    assert torch.allclose(ours, run(model), atol=1e-5) and not torch.allclose(ours, expected, atol=1e-3)
    assert report.fallbacks == 0


def test_compare_leaves_out_what_falls_back(net, x):
    swiglu.patch(net)
    net.layers[0].up.register_forward_hook(lambda *_: None)
    assert [layer.name for layer in swiglu.compare(net, x).layers] == ["layers.1"]
    prune.l1_unstructured(net.layers[1].up, "weight", amount=0.5)
    with pytest.raises(ValueError, match="no feed-forward block"):
        swiglu.compare(net, x)


@pytest.mark.parametrize("use", [swiglu.restore, swiglu.repack, swiglu.patch, lambda m: swiglu.compare(m, None),
                                 lambda m: swiglu.patched(m).__enter__()])
def test_what_is_no_module_is_named(use):
    with pytest.raises(TypeError, match="must be a torch.nn.Module, not NoneType"):
        use(None)


def test_compare_says_what_it_cannot_measure(net, x):
    with pytest.raises(ValueError, match="repeats is 0"):
        swiglu.compare(net, x, repeats=0)
    with pytest.raises(ValueError, match="layers.0 was given no rows"):
        swiglu.compare(net, x[:0])


def test_tracing_and_generated_classes(net, x):
    expected = evaluate(net, x)
    swiglu.patch(net)
    with torch.no_grad():
        traced = torch.jit.trace(net, (x,))
    assert torch.allclose(traced(x), expected, atol=1e-6)
    assert torch.allclose(torch.jit.trace(net, (x,))(x), net(x), atol=1e-6)  # with gradients
    assert not swiglu.patch(traced).replaced
    graph = torch.fx.symbolic_trace(Net().eval().layers[0])
    assert not swiglu.patch(graph).replaced
    graph.recompile()
    assert graph(x).shape == x.shape


def test_a_class_that_forbids_derived_ones_is_left_alone(x):
    class Closed(MLP):
        def __init_subclass__(cls):
            raise RuntimeError("closed")

    for dry_run in (True, False):
        report = swiglu.patch(nn.ModuleDict({"mlp": Closed(), "other": MLP()}), dry_run=dry_run)
        assert len(report.replaced) == 1 and "no class can be derived from Closed: closed" in report.left[0].reason


def test_a_model_of_transformers_survives_all_of_it():
    model = make("llama")
    expected = run(model)
    for options in ({}, {"free": True}, {"policy": "keep"}):
        report = swiglu.patch(model, **options)
        assert len(report.replaced) == LAYERS
    swiglu.restore(model)
    assert torch.equal(run(model), expected) and torch.equal(model(tokens()).logits, expected)
