# SPDX-License-Identifier: Apache-2.0
"""Blocks with PEFT's adapters: the same block with and without patching, in training and inference."""

import copy

import pytest
import swiglu
import torch
from families import make
from torch import nn

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

LLAMA = ["gate_proj", "up_proj", "down_proj"]
TARGETS = {"llama": LLAMA, "llama_bias": LLAMA, "phi3": ["gate_up_proj", "down_proj"], "gpt2": ["c_fc", "mlp.c_proj"]}
# Chains of at most 6 products of depth 200, each with a relative error of depth * eps in the norm, and 2 bits for what
# cancels; with bf16, of roundings: at most 16 between an input and a gradient.
ROUNDING = {torch.float32: 6 * 200 * 2**-24 * 4, torch.bfloat16: 16 * 2**-8}


def tokens(rows=2):
    return torch.arange(rows * 9).reshape(rows, 9) * 7 % 100


def config(**options):
    options.setdefault("target_modules", LLAMA)
    return peft.LoraConfig(**{"r": 4, "lora_alpha": 8, "init_lora_weights": False, **options})


def adapted(family="llama", dtype=torch.float32, **options):
    model = make(family, dtype=dtype)
    return peft.get_peft_model(model, config(target_modules=options.pop("target_modules", TARGETS[family]), **options))


def losses(model, seed=0):
    """The loss, whose gradients are in the parameters."""
    torch.manual_seed(seed)
    model.zero_grad()
    loss = model(tokens(), labels=tokens()).loss
    loss.backward()
    return loss.detach()


def logits(model):
    with torch.no_grad():
        return model(tokens()).logits.float()


def assert_near(got, want, dtype, what=""):
    error, size = (got.double() - want.double()).norm(), want.double().norm()
    assert error <= ROUNDING[dtype] * size, f"{what}: {error / size:.1e}"


def assert_same_training(patched, eager, dtype, seed=0):
    assert_near(losses(patched, seed), losses(eager, seed), dtype, "loss")
    n = 0
    for (name, p), q in zip(patched.named_parameters(), eager.parameters()):
        assert (p.grad is None) == (q.grad is None), name
        if q.grad is not None:
            assert p.grad.dtype is q.grad.dtype
            assert_near(p.grad, q.grad, dtype, name)
            n += 1
    return n


def assert_same(patched, eager, dtype=torch.float32, seed=0):
    for mode in (True, False):
        patched.train(mode), eager.train(mode)
        assert assert_same_training(patched, eager, dtype, seed)
    assert_near(logits(patched), logits(eager), dtype, "logits")


def both(*args, policy="recompute", **options):
    """(a patched model, its report, the same model unpatched)."""
    eager = adapted(*args, **options)
    model = copy.deepcopy(eager)
    report = swiglu.patch(model, policy=policy)
    assert report.replaced and not report.left
    return model, report, eager


@pytest.mark.parametrize("policy", ["recompute", "keep"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", TARGETS)
def test_families(family, dtype, policy):
    model, report, eager = both(family, dtype, policy=policy)
    assert_same(model, eager, dtype)
    assert report.fallbacks == 0


@pytest.mark.parametrize(
    "options",
    [
        {"target_modules": ["gate_proj"]},
        {"target_modules": ["up_proj"]},
        {"target_modules": ["down_proj"]},
        {"target_modules": ["up_proj", "down_proj"], "r": 40},
        {"use_rslora": True, "r": 3},
        {"rank_pattern": {"gate_proj": 7}, "alpha_pattern": {"down_proj": 5}},
        {"bias": "all"},
        {"use_dora": True},
        {"use_dora": True, "target_modules": ["gate_proj"], "bias": "all"},
        {"use_dora": True, "use_rslora": True, "target_modules": ["down_proj"]},
    ],
    ids=str,
)
def test_kinds_of_adapters(options):
    model, report, eager = both("llama_bias", **options)
    assert_same(model, eager)
    assert report.fallbacks == 0


@pytest.mark.parametrize("policy", ["recompute", "keep"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", ["llama", "phi3"])
def test_magnitudes(family, dtype, policy):
    eager = adapted(family, dtype, use_dora=True)
    for name, p in eager.named_parameters():
        if "magnitude" in name:
            p.data *= torch.linspace(0.7, 1.4, len(p)).to(p.dtype)
    model = copy.deepcopy(eager)
    report = swiglu.patch(model, policy=policy)
    assert_same(model, eager, dtype)
    before = logits(model)
    torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1).step()
    assert not torch.equal(logits(model), before) and report.fallbacks == 0


def test_magnitudes_keep_no_matrix():
    model, _, _ = both(use_dora=True)
    block, x, kept = model.base_model.model.model.layers[0].mlp, torch.randn(5, 64, requires_grad=True), []
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        block(x)
    assert sum(t.numel() for t in kept if t.untyped_storage().data_ptr() not in own) == x.numel()


def test_dropout_draws_what_eager_draws():
    model, report, eager = both(lora_dropout=0.3, target_modules=["gate_proj", "up_proj"])
    for seed in range(3):
        assert_same(model, eager, seed=seed)
    assert report.fallbacks == 0
    model.train()
    assert losses(model, 1) != losses(model, 2)


def test_adapters_of_another_dtype_than_the_weights():
    eager = peft.get_peft_model(make("llama", dtype=torch.bfloat16), config(), autocast_adapter_dtype=False)
    model = copy.deepcopy(eager)
    report = swiglu.patch(model)
    assert_same(model, eager, torch.bfloat16)
    assert {p.dtype for n, p in model.named_parameters() if "lora_" in n} == {torch.bfloat16}
    for module in model.modules():  # and of several dtypes in one block
        if hasattr(module, "lora_A") and "default" in module.lora_A and module.out_features == 200:
            module.lora_A.float(), module.lora_B.float()
    eager.load_state_dict(model.state_dict())
    assert_same(model, copy.deepcopy(model), torch.bfloat16)
    assert report.fallbacks == 0


def test_autocast():
    model, report, eager = both()
    with torch.autocast("cpu", torch.bfloat16):
        assert_same_training(model, eager, torch.bfloat16)
        assert_near(logits(model.eval()), logits(eager.eval()), torch.bfloat16)
    assert report.fallbacks == 0


def test_several_adapters_and_switching():
    eager = adapted()
    eager.add_adapter("other", config(r=6, target_modules=["gate_proj", "down_proj"]))
    model = copy.deepcopy(eager)
    report = swiglu.patch(model)
    seen = []
    for names in ("default", "other", ["default", "other"], ["other", "default"], "default"):
        for m in (model, eager):
            m.base_model.set_adapter(names)
        assert_same(model, eager)
        seen.append(logits(model))
    assert torch.equal(seen[0], seen[-1]) and not torch.allclose(seen[0], seen[1], atol=1e-4)
    with model.disable_adapter(), eager.disable_adapter():
        assert_near(logits(model), logits(eager), torch.float32)
        assert not torch.allclose(logits(model), seen[0], atol=1e-4)
    assert report.fallbacks == 0


def test_merging_in_place_is_noticed():
    """Also where a packed copy of the weights is there already."""
    model, report, eager = both()
    model.eval(), eager.eval()
    with model.disable_adapter():
        bare = logits(model)  # packs
    unmerged = logits(model)
    model.merge_adapter(), eager.merge_adapter()
    merged = logits(model)
    assert_near(merged, logits(eager), torch.float32)
    assert_near(merged, unmerged, torch.float32)
    with model.disable_adapter():  # the first call takes them out, in the original forward
        assert_near(logits(model), bare, torch.float32)
    assert 0 < report.fallbacks <= 2 * 3
    before = report.fallbacks
    assert_near(logits(model), unmerged, torch.float32)
    assert report.fallbacks == before
    whole = model.merge_and_unload()
    assert_near(logits(whole), unmerged, torch.float32)


def test_an_optimiser_is_noticed():
    model, report, _ = both()
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01, fused=True)
    before = logits(model.eval())
    losses(model.train())
    optimiser.step()
    after = logits(model.eval())
    assert not torch.allclose(before, after, atol=1e-4)
    swiglu.restore(model)
    assert_near(after, logits(model), torch.float32)
    assert report.fallbacks == 0


def test_loading_an_adapter_is_noticed():
    model, _, _ = both()
    model.eval()
    state = {k: torch.randn_like(v) / 10 for k, v in peft.get_peft_model_state_dict(model).items()}
    before = logits(model)
    peft.set_peft_model_state_dict(model, state)
    after = logits(model)
    assert not torch.allclose(before, after, atol=1e-4)
    swiglu.restore(model)
    assert_near(after, logits(model), torch.float32)


def test_frozen_weights_have_no_gradient_and_nothing_is_kept_for_them():
    model, _, eager = both(r=2)
    block, x = model.base_model.model.model.layers[0].mlp, torch.randn(64, 64, requires_grad=True)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def kept(policy):
        block._swiglu.policy = policy
        sizes = {}

        def pack(t):
            if t.untyped_storage().data_ptr() not in own:
                sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            block(x).sum().backward()
        return sum(sizes.values())

    d, f, low = 64, block.up_proj.out_features, 32  # a head has 32 columns here
    assert kept("recompute") == 64 * 4 * (d + 2 * low)
    assert kept("keep") == 64 * 4 * (d + 2 * low + 2 * (-(-f // 64) * 64))
    assert all(p.grad is None for n, p in model.named_parameters() if "lora_" not in n)


def test_own_modules_run_fused(recwarn):
    from swiglu.nn import SwiGLUParallel

    torch.manual_seed(0)
    x, holder = torch.randn(5, 16, requires_grad=True), nn.Sequential(SwiGLUParallel(16, 24, multiple_of=1))
    model = peft.get_peft_model(holder, config(target_modules=["w_gate_up", "w_down"]))
    y = model(x)
    y.sum().backward()
    assert not [w for w in recwarn if "plain PyTorch" in str(w.message)]
    block = model.base_model.model[0]
    other = x.detach().requires_grad_()
    gate, up = block.w_gate_up(other).chunk(2, -1)
    block.w_down(nn.functional.silu(gate) * up).sum().backward()
    assert_near(x.grad, other.grad, torch.float32)


@pytest.mark.parametrize("options", [{"lora_dropout": 0.2, "target_modules": LLAMA[:2]}, {"use_dora": True}], ids=str)
def test_second_derivatives(options):
    model, _, eager = both(**options)
    results = []
    for m in (model, eager):
        torch.manual_seed(0)
        block, x = m.base_model.model.model.layers[0].mlp, torch.ones(3, 64, requires_grad=True)
        (dx,) = torch.autograd.grad(block(x).square().sum(), x, create_graph=True)
        dx.square().sum().backward()
        results.append([x.grad, *(p.grad for p in block.parameters() if p.requires_grad)])
    for a, b in zip(*results):
        assert_near(a, b, torch.float32)


def test_twenty_steps_of_a_trainer():
    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, i):
            ids = (torch.arange(12) * (i + 3)) % 100
            return {"input_ids": ids, "labels": ids}

    class Recorder(transformers.Trainer):
        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            self.seen.append(float(loss))
            return loss

    def train(model, folder):
        arguments = transformers.TrainingArguments(
            folder, max_steps=20, per_device_train_batch_size=4, learning_rate=1e-3, use_cpu=True, report_to=[], seed=3,
            save_strategy="no", logging_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        trainer = Recorder(model, arguments, train_dataset=Rows())
        trainer.seen = []
        trainer.train()
        return trainer.seen

    import tempfile

    model, report, eager = both()
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = train(model, folder), train(eager, folder)
    assert len(ours) == 20 and ours[-1] < ours[0]
    assert all(abs(a - b) <= 1e-6 * b for a, b in zip(ours, theirs)), [a / b - 1 for a, b in zip(ours, theirs)]
    assert report.fallbacks == 0


# ---- what stays with the original forward, and why ----


def falls_back(model, report, reason, inputs=None):
    before = report.fallbacks
    model(tokens() if inputs is None else inputs)
    assert report.fallbacks == before + 2
    assert any(reason in text for text in report.entries[0].fallbacks), report.entries[0].fallbacks


def layer(model, name="gate_proj"):
    return [m for n, m in model.named_modules() if n.endswith(f"mlp.{name}")]


def test_near_misses():
    def hook(m):
        [c.lora_A["default"].register_forward_hook(lambda *_: None) for c in layer(m)]

    def other_linear(m):
        class Mine(nn.Linear):
            pass

        for child in layer(m):
            child.lora_B["default"].__class__ = Mine

    def other_dropout(m):
        for child in layer(m):
            child.lora_dropout["default"] = nn.AlphaDropout(0.5)

    def trained(m):
        for child in layer(m):
            child.base_layer.weight.requires_grad_()

    def other_forward(m):
        cls = type(layer(m)[0])
        made = type("Linear", (cls,), {"forward": lambda self, x: cls.forward(self, x) * 2.0, "__module__": cls.__module__})
        for child in layer(m):
            child.__class__ = made

    cases = {
        "is not made of plain nn.Linear": (hook, other_linear),
        "the dropout of its adapter default is a AlphaDropout": (other_dropout,),
        "its base weight is trained too": (trained,),
        "its adapters compute": (other_forward,),
    }
    for reason, changes in cases.items():
        for change in changes:
            model, report, _ = both()
            change(model)
            falls_back(model, report, reason)


def test_magnitudes_with_dropout_or_beside_other_adapters():
    model, report, _ = both(use_dora=True, lora_dropout=0.2)
    falls_back(model.train(), report, "has a magnitude and dropout")
    before = report.fallbacks
    model.eval()(tokens())
    assert report.fallbacks == before
    model.add_adapter("other", config())
    model.base_model.set_adapter(["default", "other"])
    falls_back(model, report, "is a DoraLinearVariant, among others")


def test_mixed_batches_and_hooks():
    model, report, eager = both()
    model.eval(), eager.eval()
    with torch.no_grad():
        names = ["default", "__base__"]
        got, want = (m(tokens(), adapter_names=names).logits for m in (model, eager))
    assert torch.allclose(got, want, atol=1e-5) and report.fallbacks == 2


def test_compile_takes_adapters_one_by_one():
    model, report, eager = both()
    block, x = model.base_model.model.model.layers[0].mlp.eval(), torch.randn(3, 64)
    with torch.no_grad():
        assert torch.allclose(torch.compile(block, backend="eager")(x), block(x), atol=1e-6)


def test_free_keeps_the_weights_of_adapted_blocks():
    model = adapted().eval()
    report = swiglu.patch(model, free=True)
    assert {entry.kept for entry in report.replaced} == {"adapters are attached to it"}
    assert logits(model).shape == (2, 9, 128) and report.fallbacks == 0


def test_shapes_that_do_not_fit_are_refused():
    from swiglu.torch.lora import Update, lora_ffn

    parts = (torch.randn(24, 16), torch.randn(24, 16), torch.randn(16, 24), None, None, None)
    a, b = torch.randn(4, 16), torch.randn(24, 4)
    x = torch.randn(3, 16)
    assert lora_ffn(x, parts, [[Update(a, b, 1.0)], [], []]).shape == (3, 16)
    with pytest.raises(ValueError, match="an update of up has shapes"):
        lora_ffn(x, parts, [[], [Update(b, a, 1.0)], []])
    with pytest.raises(ValueError, match="x has shape"):
        lora_ffn(x[:, :8], parts, [[Update(a, b, 1.0)], [], []])


def test_no_rows():
    from swiglu.torch.lora import Update, lora_ffn

    parts = (torch.randn(24, 16), torch.randn(24, 16), torch.randn(16, 24), None, None, None)
    a, b, x = torch.randn(4, 16, requires_grad=True), torch.randn(24, 4), torch.randn(0, 16, requires_grad=True)
    low = Update(torch.randn(4, 24), torch.randn(16, 4, requires_grad=True), 2.0)
    lora_ffn(x, parts, [[Update(a, b, 1.0)], [], [low]]).sum().backward()
    assert a.grad.eq(0).all() and low.b.grad.eq(0).all() and x.grad.shape == (0, 16)
