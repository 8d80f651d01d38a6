# SPDX-License-Identifier: Apache-2.0
"""What stands in the way of one evaluation is noticed at each call, and then the original forward runs."""
import pytest
import swiglu
import torch
from families import LAYERS, blocks, make, run, tokens
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune


def first(model):
    return blocks(model)[0][1]


def falls_back(model, report, reason, at_a_time=1):
    """The next run falls back, for this reason, and gives what the original does."""
    before = report.fallbacks
    ours = run(model)
    assert report.fallbacks == before + at_a_time
    reasons = [text for entry in report.replaced for text in entry.fallbacks]
    assert any(reason in text for text in reasons), reasons
    assert reason in str(report)
    swiglu.restore(model)
    assert torch.allclose(ours, run(model), rtol=0, atol=1e-6)


def runs_fused(model, report):
    before = report.fallbacks
    run(model)
    assert report.fallbacks == before


@pytest.mark.parametrize("child", ["gate_proj", "up_proj", "down_proj", "act_fn"])
def test_hooks_run(model, child):
    report = swiglu.patch(model)
    runs_fused(model, report)
    seen = []
    handle = getattr(first(model), child).register_forward_hook(lambda module, args, y: seen.append(y.shape))
    run(model)
    assert len(seen) == 1 and report.replaced[0].fallbacks == {f"{child} has hooks": 1}
    handle.remove()
    runs_fused(model, report)
    getattr(first(model), child).register_full_backward_hook(lambda module, dx, dy: None)
    falls_back(model, report, f"{child} has hooks")


def test_global_hooks(model):
    report = swiglu.patch(model)
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, y: None)
    try:
        falls_back(model, report, "global module hooks", LAYERS)
    finally:
        handle.remove()


def test_hooks_of_the_block_itself_are_no_obstacle(model):
    report = swiglu.patch(model)
    seen = []
    first(model).register_forward_hook(lambda module, args, y: seen.append(type(y)))
    runs_fused(model, report)
    assert seen == [torch.Tensor]


def test_parametrisation(model):
    report = swiglu.patch(model)
    parametrizations.weight_norm(first(model).up_proj)
    falls_back(model, report, "up_proj is a ParametrizedLinear")
    parametrize.remove_parametrizations(first(model).up_proj, "weight")
    runs_fused(model, swiglu.patch(model))


def test_pruning(model):
    report = swiglu.patch(model)
    prune.l1_unstructured(first(model).down_proj, "weight", amount=0.5)
    falls_back(model, report, "down_proj has hooks")


def test_a_child_of_another_class(model):
    class Adapter(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) * 2

    report = swiglu.patch(model)
    first(model).gate_proj = Adapter(first(model).gate_proj)
    falls_back(model, report, "gate_proj is a Adapter")


def test_another_activation(model):
    report = swiglu.patch(model)
    first(model).act_fn = nn.ReLU()
    falls_back(model, report, "act_fn is another activation")


def test_a_forward_on_the_instance(model):
    report = swiglu.patch(model)
    child = first(model).gate_proj
    child.forward = lambda x: nn.functional.linear(x, child.weight) + 1
    falls_back(model, report, "gate_proj has hooks")


def test_a_replaced_class_forward(model, monkeypatch):
    report = swiglu.patch(model)
    original = nn.Linear.forward
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: original(self, x) * 1)
    falls_back(model, report, "the forward of Linear is replaced", LAYERS)


def test_other_inputs(model):
    report = swiglu.patch(model)
    block = first(model)
    with pytest.raises(RuntimeError):
        block(torch.randn(2, 64, dtype=torch.float64))
    assert block(x=torch.randn(2, 64)).shape == (2, 64) and report.fallbacks == 1
    with pytest.raises(TypeError):
        block(torch.randn(2, 64), 3)
    with pytest.raises(TypeError):
        block()
    assert block(torch.randn(0, 64)).shape == (0, 64)


def test_transforms_of_torch_func(model):
    block = first(model)
    report = swiglu.patch(model)
    x = torch.randn(3, 2, 64)
    with torch.no_grad():
        eager = type(block)._swiglu_original.forward(block, x)
        assert torch.allclose(torch.func.vmap(block)(x), eager, atol=1e-6)
        _, tangent = torch.func.jvp(block, (x,), (torch.ones_like(x),))
    assert tangent.shape == x.shape and report.fallbacks == 2


def test_functional_call_uses_the_given_weights(model):
    block = first(model)
    report = swiglu.patch(model)
    x = torch.randn(3, 64)
    given = {name: torch.zeros_like(p) for name, p in block.named_parameters()}
    with torch.no_grad():
        assert torch.equal(torch.func.functional_call(block, given, (x,)), torch.zeros(3, 64))
        assert block(x).abs().max() > 0
    assert report.fallbacks == 0


def test_autocast(model):
    report = swiglu.patch(model)
    x = torch.randn(3, 64)
    block = first(model)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        ours = block(x)
        eager = type(block)._swiglu_original.forward(block, x)
    assert ours.dtype == eager.dtype == torch.bfloat16 and report.fallbacks == 0
    assert float((ours - eager).float().norm()) <= 2**-6 * float(eager.float().norm())


def test_compile_and_export(model):
    block = first(model)
    swiglu.patch(model)
    x = torch.randn(3, 64)
    with torch.no_grad():
        y = block(x)
        torch._dynamo.reset()
        assert torch.equal(torch.compile(block, fullgraph=True, backend="eager")(x), y)
        program = torch.export.export(block, (x,))
        assert torch.equal(program.module()(x), y)
    assert "swiglu" in str(program.graph)


@pytest.mark.parametrize("family", ["gpt2", "phi3", "starcoder2", "gemma3"])
def test_compiled_training_steps(family):
    model = make(family).train()
    block = blocks(model)[0][1]
    swiglu.patch(model)
    x = torch.randn(3, 64)
    results = []
    torch._dynamo.reset()
    for way in (block, torch.compile(block, fullgraph=True, backend="aot_eager")):
        model.zero_grad()
        torch.manual_seed(2)
        y = way(x)
        y.sum().backward()
        results.append([y.detach(), *(p.grad.clone() for p in block.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results))


def test_hooks_of_accelerate(model):
    hooks = pytest.importorskip("accelerate.hooks")
    report = swiglu.patch(model)
    expected = run(model)
    hooks.add_hook_to_module(first(model), hooks.ModelHook())
    assert torch.equal(run(model), expected) and report.fallbacks == 0
    hooks.add_hook_to_module(first(model).up_proj, hooks.ModelHook())
    run(model)
    assert report.fallbacks == 1
    hooks.remove_hook_from_module(first(model), recurse=True)
    runs_fused(model, report)
    hooks.add_hook_to_module(first(model), hooks.ModelHook())
    swiglu.restore(model)
    assert torch.allclose(run(model), expected, atol=1e-6)
    hooks.remove_hook_from_module(first(model))
    runs_fused(model, report := swiglu.patch(model))
    assert len(report.replaced) == LAYERS
    swiglu.restore(model)
    hooks.add_hook_to_module(first(model), hooks.ModelHook())
    report = swiglu.patch(model)
    assert "replaced on the instance" in report.left[0].reason and len(report.replaced) == LAYERS - 1


def test_peft_after_patching(model):
    """C145, C146: adapters on one projection are trained, within the block."""
    peft = pytest.importorskip("peft")
    report = swiglu.patch(model)
    before = run(model)
    config = peft.LoraConfig(r=4, target_modules=["up_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(model, config)
    out = adapted(tokens()).logits
    assert report.fallbacks == 0 and not torch.allclose(out, before, atol=1e-4)
    out.sum().backward()
    grads = [name for name, p in adapted.named_parameters() if p.grad is not None]
    assert len(grads) == 2 * LAYERS and all("up_proj.lora_" in name for name in grads)
    merged = adapted.merge_and_unload()
    with torch.no_grad():
        assert torch.allclose(merged(tokens()).logits, out, atol=1e-5)
    assert report.fallbacks == 0


def test_peft_before_patching(model):
    peft = pytest.importorskip("peft")
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["gate_proj"]))
    report = swiglu.patch(adapted)
    assert len(report.replaced) == LAYERS and not report.left
    assert run(adapted).shape == (2, 9, 128) and report.fallbacks == 0


# ---- code that is replaced after patching ----


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down, self.act = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8), nn.SiLU()

    def forward(self, x):
        return self.down(self.mix(x))

    def mix(self, x):
        return self.act(self.gate(x)) * self.doubled(self.up(x))

    @staticmethod
    def doubled(x):
        return x


class Derived(Gated):
    """Its forward is its base's."""


REPLACED = {  # what is set on what, and the reason that is counted
    "forward of the class": (Derived, "forward", lambda self, x: x + 1, "the forward of Derived is replaced"),
    "forward of a base": (Gated, "forward", lambda self, x: x + 1, "the forward of Derived is replaced"),
    "a method": (Gated, "mix", lambda self, x: self.up(x), "the mix of Derived is replaced"),
    "a static method": (Gated, "doubled", staticmethod(lambda x: 2 * x), "the doubled of Derived is replaced"),
    "forward of the products": (nn.Linear, "forward", lambda self, x: x @ self.weight.t(), "the forward of Linear is replaced"),
    "forward of the activation": (nn.SiLU, "forward", lambda self, x: x, "act is another activation now"),
    "call of the products": (nn.Linear, "__call__", lambda self, x: 2 * self.forward(x), "has hooks"),
    "call of the activation": (nn.SiLU, "__call__", lambda self, x: 2 * self.forward(x), "has hooks"),
    "inner call of the products": (nn.Linear, "_call_impl", lambda self, x: 2 * self.forward(x), "has hooks"),
    "call of all modules": (nn.Module, "__call__", lambda self, x: 2 * self.forward(x), "has hooks"),
}


@pytest.mark.parametrize("what", REPLACED)
@pytest.mark.parametrize("training", [False, True])
def test_code_that_is_replaced_after_patching_runs(monkeypatch, what, training):
    owner, name, new, reason = REPLACED[what]
    model = nn.Sequential(Derived()).train(training)
    x = torch.randn(3, 8)
    report = swiglu.patch(model)
    assert len(report.replaced) == 1, report
    model(x)
    assert report.fallbacks == 0
    monkeypatch.setattr(owner, name, new)
    ours = model(x)
    assert report.fallbacks == 1 and reason in str(report), report
    swiglu.restore(model)
    assert torch.equal(ours, model(x))


@pytest.mark.parametrize("which", ["mix", "doubled", "forward", "_call_impl"])
def test_methods_that_an_instance_has_of_its_own_run(which):
    model = nn.Sequential(Derived()).eval()
    x = torch.randn(3, 8)
    report = swiglu.patch(model)
    model(x)
    setattr(model[0], which, lambda x: x.repeat(1, 2)[:, :12] if which in ("mix", "doubled") else 3 * x)
    ours = model(x)
    swiglu.restore(model)
    assert torch.equal(ours, model(x)), report


@pytest.mark.parametrize("which", ["__call__", "_call_impl"])
def test_a_class_that_is_called_in_its_own_way_is_left_alone(which):
    class Called(Gated):
        pass

    setattr(Called, which, lambda self, x: 3 * self.forward(x))
    model = nn.Sequential(Called()).eval()
    x = torch.randn(3, 8)
    expected = model(x)
    report = swiglu.patch(model)
    assert not report.replaced and torch.equal(model(x), expected)


def test_a_model_made_in_inference_mode():
    """Its weights have no version counter; the report says why it is left alone."""
    from families import make

    with torch.inference_mode():
        model = make("llama")
        report = swiglu.patch(model)
        assert not report.replaced and "no version counter" in str(report)
        assert "no version counter" in str(swiglu.patch(model, free=True))


def test_weights_that_become_inference_tensors(model):
    report = swiglu.patch(model)
    runs_fused(model, report)
    with torch.inference_mode():
        block = first(model)
        block.down_proj.weight = nn.Parameter(block.down_proj.weight.clone(), requires_grad=False)
        falls_back(model, report, "no version counter")


def test_the_report_tells_of_repack(model):
    assert "swiglu.repack" in str(swiglu.patch(model))
