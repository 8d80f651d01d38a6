# SPDX-License-Identifier: Apache-2.0
"""swiglu.nn and swiglu.mlp: names, signatures, figures, and the same results as calling the children one by one."""
import inspect
import os
import subprocess
import sys
import types
import warnings

import pytest
import swiglu
import torch
import torch.nn.functional as F
from swiglu.mlp import FFN, SLLM_100M, ModelConfig
from swiglu.nn import GeGLU, SwiGLU, SwiGLUMLP, SwiGLUParallel, calculate_ffn_params
from swiglu.torch import FFN as AnyFFN
from swiglu.torch import block as fused
from torch import nn

CONFIG = ModelConfig(d_model=24, d_ff=40, bias=True, dropout=0.5)
MAKERS = {
    "SwiGLU": lambda: SwiGLU(24, 40, multiple_of=8),
    "SwiGLU bias": lambda: SwiGLU(24, 40, 16, multiple_of=8, bias=True),
    "SwiGLUParallel": lambda: SwiGLUParallel(24, 40, multiple_of=1),
    "SwiGLUParallel bias": lambda: SwiGLUParallel(24, 40, 16, 1, True),
    "GeGLU": lambda: GeGLU(24),
    "GeGLU bias": lambda: GeGLU(24, 41, 16, True),
    "SwiGLUMLP": lambda: SwiGLUMLP(24, 40),
    "mlp.SwiGLU": lambda: swiglu.mlp.SwiGLU(CONFIG),
    "mlp.FFN": lambda: FFN(CONFIG),
}


@pytest.fixture(params=MAKERS)
def module(request):
    torch.manual_seed(0)
    return MAKERS[request.param]()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(24,), (3, 24), (2, 5, 24), (0, 24)])
def test_results_and_gradients(module, training, shape):
    """K is at most 80 here, so that two orders of a sum are within 2 K u of each other: far below 1e-5."""
    module.train(training)
    results = []
    for way in (module, module._by_children):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1)).requires_grad_()
        module.zero_grad()
        torch.manual_seed(5)
        y = way(x)
        y.square().sum().backward()
        results.append([y.detach(), x.grad, *(p.grad for p in module.parameters())])
    assert len(results[0]) == 2 + len(list(module.parameters()))
    for ours, eager in zip(*results):
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        torch.manual_seed(5)
        assert torch.allclose(module(x), results[1][0], rtol=0, atol=1e-5)


def test_signatures():
    def arguments(cls):
        return {name: p.default for name, p in list(inspect.signature(cls.__init__).parameters.items())[1:]}

    empty = inspect.Parameter.empty
    family = {"input_dim": empty, "hidden_dim": None, "output_dim": None, "multiple_of": 256, "bias": False}
    assert arguments(SwiGLU) == arguments(SwiGLUParallel) == family
    assert arguments(GeGLU) == {k: v for k, v in family.items() if k != "multiple_of"}
    assert arguments(SwiGLUMLP) == {"d_model": empty, "d_ff": empty}
    assert list(arguments(swiglu.mlp.SwiGLU)) == list(arguments(FFN)) == ["config"]


def test_names_and_widths():
    def shapes(module):
        return {name: tuple(p.shape) for name, p in module.named_parameters()}

    assert shapes(SwiGLU(768)) == {"w_gate.weight": (2048, 768), "w_up.weight": (2048, 768), "w_down.weight": (768, 2048)}
    assert shapes(SwiGLUParallel(768)) == {"w_gate_up.weight": (4096, 768), "w_down.weight": (768, 2048)}
    assert GeGLU(1024).hidden_dim == 2730 and SwiGLU(1024).hidden_dim == 2816 and SwiGLU(1024, multiple_of=1).hidden_dim == 2730
    assert SwiGLU(64, 100).hidden_dim == 256 and SwiGLU(64, 100, multiple_of=1).hidden_dim == 100
    wide = SwiGLU(64, 100, 32, multiple_of=50, bias=True)
    assert shapes(wide)["w_down.weight"] == (32, 100) and shapes(wide)["w_down.bias"] == (32,)
    assert wide.extra_repr() == "input_dim=64, hidden_dim=100, output_dim=32"
    mlp = SwiGLUMLP(64, 128)
    assert all(type(child) is nn.Linear and child.bias is not None for child in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
    x = torch.randn(2, 64)
    assert torch.allclose(mlp(x), mlp.down_proj(F.silu(mlp.gate_proj(x)) * mlp.up_proj(x)), atol=1e-6)


def test_configs():
    assert SLLM_100M.d_ff == 2048 and ModelConfig(512).d_ff == 1280 and ModelConfig(5120).d_ff == 13568
    assert ModelConfig(512, 777).d_ff == 777
    block = swiglu.mlp.SwiGLU(types.SimpleNamespace(d_model=16, d_ff=24, bias=False))
    assert [name for name, _ in block.named_parameters()] == ["gate.weight", "up.weight", "down.weight"]
    ffn = FFN(ModelConfig(16, dropout=0.25, bias=True))
    assert ffn.w1.weight.shape == (64, 16) and ffn.dropout.p == 0.25 and ffn.w2.bias is not None


@pytest.mark.parametrize("activation", ["relu", "gelu", "swiglu", "geglu"])
@pytest.mark.parametrize("d_model", [1, 64, 512, 768, 896, 1024, 4096, 5120])
def test_calculate_ffn_params(d_model, activation):
    gated = activation in ("swiglu", "geglu")
    hidden = -(-int(8 * d_model / 3) // 256) * 256 if gated else 4 * d_model
    parameters = (3 if gated else 2) * d_model * hidden
    assert calculate_ffn_params(d_model, activation) == {
        "activation": activation,
        "d_model": d_model,
        "hidden_dim": hidden,
        "num_params": parameters,
        "params_millions": parameters / 1e6,
    }
    assert calculate_ffn_params(d_model) == calculate_ffn_params(d_model, "swiglu")


def test_calculate_ffn_params_agrees_with_the_tool():
    tool = os.environ.get("SWIGLU_TOOL")
    if not tool:
        pytest.skip("SWIGLU_TOOL is not set")
    line = subprocess.run([tool, "plan", "--d-model", "5120", "--json"], capture_output=True, text=True, check=True).stdout
    params = calculate_ffn_params(5120)
    assert f'{params["num_params"]}' in line and f'{params["hidden_dim"]}' in line


def test_calculate_ffn_params_refuses_other_names():
    with pytest.raises(ValueError, match="Unknown activation: silu"):
        calculate_ffn_params(64, "silu")
    with pytest.raises(ValueError):
        calculate_ffn_params(-1)


def test_planning_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; from swiglu.planning import calculate_ffn_params as c; print(c(768))"
    path = os.pathsep.join(sys.path)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert "'hidden_dim': 2048" in run.stdout, run.stderr


EXPECTED = {
    "swiglu.nn": """FFN Parameter Comparison:
RELU:
  Hidden dim: 3072
  Parameters: 4.72M
GELU:
  Hidden dim: 3072
  Parameters: 4.72M
SWIGLU:
  Hidden dim: 2048
  Parameters: 4.72M

SwiGLU Test:
Input shape: torch.Size([2, 512, 768])
Output shape: torch.Size([2, 512, 768])
SwiGLU parameters: 4.72M
""",
    "swiglu.mlp": """SwiGLU d_model=768  d_ff=2048
  gate : 768 x 2048 = 1,572,864
  up   : 768 x 2048 = 1,572,864
  down : 2048 x 768 = 1,572,864
  total MLP params : 4.719M
Input  shape : torch.Size([2, 64, 768])
Output shape : torch.Size([2, 64, 768])
PASS
""",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_a_module_prints(name):
    path = os.pathsep.join(sys.path)
    run = subprocess.run(
        [sys.executable, "-W", "error", "-m", name], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert run.stdout == EXPECTED[name] and run.stderr == ""


def test_torch_judge(capsys, tmp_path, monkeypatch):
    torch_judge = pytest.importorskip("torch_judge")
    monkeypatch.chdir(tmp_path)  # it keeps its progress in a file
    torch_judge.check("mlp")  # looks SwiGLUMLP up in this module
    assert "All 5 tests passed" in capsys.readouterr().out


def test_the_plain_way_says_so_once(monkeypatch):
    monkeypatch.setattr(fused, "_told", set())
    module = SwiGLUMLP(8, 12)
    seen = []
    module.up_proj.register_forward_hook(lambda *_: seen.append(1))
    x = torch.randn(3, 8)
    with pytest.warns(UserWarning, match="SwiGLUMLP runs in plain PyTorch: up_proj has hooks"):
        module(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(module(x), module._by_children(x))
    assert len(seen) == 3
    assert SwiGLU(8, 12, multiple_of=1).double()(x.double()).dtype == torch.float64


def test_wrong_inputs_are_named():
    x, module = torch.randn(3, 8), SwiGLU(8, 12, multiple_of=1)
    for wrong in (x.double(), x.long(), x.bfloat16()):
        with pytest.raises(TypeError, match=f"x is {wrong.dtype}, w_down.weight is torch.float32"):
            module(wrong)
    with pytest.raises(TypeError, match="x must be a torch.Tensor, not ndarray"):
        module(x.numpy())
    with pytest.raises(ValueError, match=r"x has shape \(3, 7\), expected \[..., 8\]"):
        module(x[:, :7])


@pytest.mark.parametrize("make", [lambda: SwiGLU(8), lambda: SwiGLUParallel(8), lambda: GeGLU(8), lambda: AnyFFN(8, 12)])
def test_meta_beside_others_is_refused(make):
    """nn.Linear without a bias gives memory that nothing has written for it."""
    x, module = torch.randn(3, 8), make()
    with pytest.raises(ValueError, match=r"x is on meta, w?_?down.*weight is on cpu"):
        module(x.to("meta"))
    module.to("meta")
    with pytest.raises(ValueError, match=r"x is on cpu, w?_?down.*weight is on meta"):
        module(x)
    assert module(x.to("meta")).shape == x.shape


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("activation", ["silu", "gelu", "silu(gate_hi=1.0)", "relu2"])
def test_ffn_calls_its_children_where_they_have_hooks_or_adapters(activation, gated):
    torch.manual_seed(0)
    x, module = torch.randn(5, 16), AnyFFN(16, 24, activation=activation, gated=gated, bias=True)
    whole = module(x)
    seen = []
    handle = module.up_proj.register_forward_hook(lambda *_: seen.append(1))
    assert torch.allclose(module(x), whole, rtol=0, atol=1e-5) and seen == [1]
    handle.remove()
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["up_proj", "down_proj"], init_lora_weights=False)
    adapted = peft.get_peft_model(nn.Sequential(module), config)
    y = adapted(x)
    assert not torch.allclose(y, whole, rtol=0, atol=1e-2)
    y.sum().backward()
    assert all(p.grad is not None for n, p in adapted.named_parameters() if "lora_" in n)
    assert torch.allclose(adapted.merge_and_unload()(x), y, rtol=0, atol=1e-4)


def test_an_activation_that_needs_an_up_side_is_refused_without_one():
    with pytest.raises(ValueError, match="an ungated block has no up side: act.up_offset"):
        AnyFFN(8, 12, activation="gpt_oss", gated=False)(torch.randn(2, 8))


def test_policy_is_an_attribute_of_every_module():
    x, module = torch.randn(5, 16, requires_grad=True), SwiGLU(16)
    kept = []
    for policy in ("recompute", "keep"):
        module.policy = policy
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept[-1].append(t.numel()) or t, lambda t: t):
            kept.append([])
            module(x).sum().backward()
    assert sum(kept[1]) > sum(kept[0])
    module.policy = "some"
    with pytest.raises(ValueError, match="policy 'some' is not one of recompute, keep"):
        module(x)


def test_patch_leaves_our_own_modules():
    holder = nn.ModuleDict({"mlp": SwiGLUMLP(8, 12)})
    report = swiglu.patch(holder)
    assert not report.replaced and type(holder["mlp"]) is SwiGLUMLP
    assert "computes with swiglu already" in report.left[0].reason


@pytest.mark.parametrize("targets", [["w_gate_up"], ["w_gate_up", "w_down"]])
def test_c145_lora_on_a_packed_projection(targets):
    peft = pytest.importorskip("peft")
    holder = nn.Sequential(SwiGLUParallel(16, 24, multiple_of=1))
    x = torch.randn(3, 16)
    before = holder(x).detach()
    adapted = peft.get_peft_model(holder, peft.LoraConfig(r=4, target_modules=targets, init_lora_weights=False))
    assert dict(adapted.named_parameters())["base_model.model.0.w_gate_up.lora_B.default.weight"].shape == (48, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        y = adapted(x).detach()
    assert not torch.allclose(y, before, atol=1e-3)
    merged = adapted.merge_and_unload()
    assert torch.allclose(merged(x), y, atol=1e-5) and type(merged[0].w_gate_up) is nn.Linear


def test_c146_lora_on_up_alone():
    """With separate projections the gate is untouched; with a packed one PEFT says that there is no such module."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["up_proj"], init_lora_weights=False)
    holder = nn.Sequential(SwiGLUMLP(16, 24))
    gate, up = (getattr(holder[0], name).weight.clone() for name in ("gate_proj", "up_proj"))
    merged = peft.get_peft_model(holder, config).merge_and_unload()
    assert torch.equal(merged[0].gate_proj.weight, gate) and not torch.equal(merged[0].up_proj.weight, up)
    with pytest.raises(ValueError, match="up_proj"):
        peft.get_peft_model(nn.Sequential(SwiGLUParallel(16, 24, multiple_of=1)), config)


def test_state_dict_round_trip_and_optimiser(module):
    state = {key: value.clone() for key, value in module.state_dict().items()}
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    x = torch.randn(4, 24)
    module.eval()
    with torch.no_grad():
        before = module(x)
    module(x).sum().backward()
    optimiser.step()
    with torch.no_grad():
        assert not torch.allclose(module(x), before)
        module.load_state_dict(state)
        assert torch.equal(module(x), before)


def test_compile(module):
    torch._dynamo.reset()
    module.eval()
    x = torch.randn(3, 24)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), module(x))
    with torch.no_grad():
        assert torch.equal(compiled(x), module(x))
