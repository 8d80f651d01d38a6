# SPDX-License-Identifier: Apache-2.0
"""Blocks whose products are children of a larger module: evaluated as one where the larger forward lets them be, computed
one after the other in whatever else is done with them."""
import copy
import pickle
import re

import pytest
import swiglu
import torch
import torch.nn.functional as F
import transformers
from swiglu.dropin.inside import Pending
from test_families import assert_as_good_as
from torch import nn

D, FF = 16, 24
BERT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64}
BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "decoder_start_token_id": 2}  # fmt: skip
MODELS = {  # blocks, model, config
    "opt": (2, "OPTModel", {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
                            "vocab_size": 64, "word_embed_proj_dim": 32}),
    "xglm": (2, "XGLMModel", {"d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4, "vocab_size": 64}),
    "bert": (2, "BertModel", BERT),
    "roberta": (2, "RobertaModel", BERT | {"pad_token_id": 0}),
    "bloom": (2, "BloomModel", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": 64}),
    "mpt": (2, "MptModel", {"d_model": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 64}),
    "bart": (4, "BartModel", BART),
}  # fmt: skip


def made(name):
    torch.manual_seed(0)
    _, cls, config = MODELS[name]
    cls = getattr(transformers, cls)
    model = cls(cls.config_class(**config))
    with torch.no_grad():
        for p in model.parameters():
            p.normal_(0, p.shape[-1] ** -0.5 if p.dim() > 1 else 0.3)
    return model.eval()


def results(model):
    model.zero_grad()
    y = model(torch.arange(3, 12)[None]).last_hidden_state
    y.square().sum().backward()
    gradients = [p.grad.double().flatten() for p in model.parameters() if p.grad is not None]
    return [y.detach().double(), torch.cat(gradients)]


def fused_calls(monkeypatch):
    from swiglu.dropin import inside

    calls, ffn = [], inside.ffn
    monkeypatch.setattr(inside, "ffn", lambda *args, **kwargs: calls.append(1) or ffn(*args, **kwargs))
    return calls


@pytest.mark.parametrize("name", MODELS)
def test_models(name, monkeypatch):
    """Dropout is off: eval mode with gradients."""
    model = made(name)
    eager = results(model)
    exact = eager if name == "xglm" else results(copy.deepcopy(model).double())  # XGLM does not run in double
    calls = fused_calls(monkeypatch)
    report = swiglu.patch(model)
    assert len(report.replaced) == MODELS[name][0] and not report.left, report
    ours = results(model)
    assert len(calls) == MODELS[name][0] and report.fallbacks == 0
    assert len(swiglu.patch(model, policy="keep").replaced) == MODELS[name][0]
    for way in (ours, results(model)):
        for a, b, c in zip(way, eager, exact):
            if name == "xglm":
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))
            else:
                assert_as_good_as(a, b, c, name)
    assert swiglu.restore(model) == MODELS[name][0]
    assert all(torch.equal(a, b) for a, b in zip(results(model), eager))


class Layer(nn.Module):
    """As OPT and Whisper write it."""

    def __init__(self):
        super().__init__()
        self.norm, self.fc1, self.fc2 = nn.LayerNorm(D), nn.Linear(D, FF), nn.Linear(FF, D)
        self.activation, self.p = nn.GELU(), 0.0

    def forward(self, hidden_states, attention_mask, extra=None):
        h = self.norm(hidden_states)
        h = self.activation(self.fc1(h))
        h = F.dropout(h, self.p, self.training)
        if extra is not None:
            h = extra(h)
        return hidden_states + self.fc2(h)


class Function(Layer):
    def forward(self, x, mask=None, extra=None):
        h = F.gelu(self.fc1(self.norm(x)), approximate="tanh")
        return x + self.fc2(h if extra is None else extra(h))


class Held(nn.Module):
    def __init__(self, layer):
        super().__init__()
        torch.manual_seed(0)
        self.layer = layer

    def forward(self, x, **kwargs):
        return self.layer(x, None, **kwargs)


class CustomDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h):
        return h * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * 2


def in_place(h):
    h.mul_(2)
    return h


EXTRAS = {
    "scaled": lambda h: h * 2,
    "view": lambda h: h.view(-1, FF).view(h.shape),
    "in place": in_place,
    "autograd function": CustomDropout.apply,
    "no gradient": lambda h: h.detach(),
    "numpy": lambda h: torch.from_numpy(h.detach().numpy().copy()),
    "printed": lambda h: h if "tensor" in repr(h) else None,
    "cat": lambda h: torch.cat([h[:, :1], h[:, 1:]], 1),
    "activated again": F.relu,
    "pad": lambda h: F.pad(h, (0, 0)),
    "sum of uses": lambda h: h + h,
    "metadata": lambda h: h if h.shape[-1] == FF and h.dim() == 3 and h.dtype == torch.float32 and h.size(0) == 2 else None,
    "asks for gradients": lambda h: h if h.requires_grad else h * 3,
    "leaves": lambda h: h if h.is_leaf else h * 1,
}
FUSED = {"metadata"}


@pytest.mark.parametrize("cls", [Layer, Function])
@pytest.mark.parametrize("extra", EXTRAS)
def test_whatever_else_is_done_with_the_product(cls, extra, monkeypatch):
    """The forward takes another way than when it was traced."""
    holder, x = Held(cls()), torch.randn(2, 3, D)

    def outcome():
        given = x.clone().requires_grad_()
        holder.zero_grad()
        y = holder(given, extra=EXTRAS[extra])
        y.square().sum().backward()
        return [y.detach(), given.grad, *(p.grad for p in holder.parameters())]

    eager, calls = outcome(), fused_calls(monkeypatch)
    report = swiglu.patch(holder)
    assert len(report.replaced) == 1, report
    for ours, theirs in zip(outcome(), eager):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert (len(calls), report.fallbacks) == ((1, 0) if extra in FUSED else (0, 1)), report


def test_active_dropout_in_training():
    holder, x = Held(Layer()).train(), torch.randn(2, 3, D)
    holder.layer.p, outcomes = 0.5, []
    for patched in (False, True):
        report = swiglu.patch(holder) if patched else None
        torch.manual_seed(5)
        outcomes.append(holder(x))
    torch.testing.assert_close(*outcomes)
    assert report.replaced[0].fallbacks == {"dropout is applied to a product inside": 1}


def test_children_called_on_their_own():
    holder, x = Held(Layer()), torch.randn(2, D)
    fc1, fc2 = holder.layer.fc1, holder.layer.fc2
    eager = fc1(x)
    report = swiglu.patch(holder)
    assert isinstance(fc1, nn.Linear) and isinstance(holder.layer.activation, nn.GELU)
    assert torch.equal(fc1(x) + 0, eager) and torch.equal(fc2(eager), F.linear(eager, fc2.weight, fc2.bias))
    assert torch.equal(holder.layer.activation(eager), F.gelu(eager))
    assert report.fallbacks == 1


def test_changed_in_place_between_the_products_is_an_error():
    holder, x = Held(Layer()), torch.randn(2, 3, D)
    swiglu.patch(holder)
    kept = []
    holder(x, extra=lambda h: kept.append(h) or torch.zeros(2, 3, FF))
    assert type(kept[0]) is Pending
    with torch.no_grad():
        holder.layer.fc1.weight.zero_()
    with pytest.raises(RuntimeError, match="changed in place between its two products"):
        kept[0] + 1


@pytest.mark.parametrize("child", ["fc1", "activation", "fc2"])
def test_hooks(child):
    holder, x = Held(Layer()), torch.randn(2, 3, D)
    eager = holder(x)
    report = swiglu.patch(holder)
    seen = []
    handle = getattr(holder.layer, child).register_forward_hook(lambda module, args, y: seen.append(y + 0))
    torch.testing.assert_close(holder(x), eager)
    assert len(seen) == 1 and report.fallbacks == 1
    handle.remove()
    torch.testing.assert_close(holder(x), eager)
    assert report.fallbacks == 1


def test_copies_pickles_states_and_threads_of_the_model():
    holder, x = Held(Layer()), torch.randn(2, 3, D)
    eager, keys = holder(x), list(holder.state_dict())
    swiglu.patch(holder)
    assert list(holder.state_dict()) == keys
    twin = copy.deepcopy(holder)
    with torch.no_grad():
        twin.layer.fc1.weight.zero_()
    assert not torch.allclose(twin(x), eager, atol=1e-3)
    again = pickle.loads(pickle.dumps(Held(Layer()).layer.fc1.__class__))  # a class by its name
    assert again is nn.Linear
    torch.testing.assert_close(pickle.loads(pickle.dumps(holder))(x), eager)
    torch.testing.assert_close(holder(x), eager)
    with swiglu.patched(twin):
        pass
    assert type(twin.layer.fc1) is type(holder.layer.fc1) and swiglu.restore(twin) == 1
    with swiglu.patched(twin) as report:
        assert len(report.replaced) == 1
    assert type(twin.layer.fc1) is nn.Linear


def test_autocast_compile_export_checkpoint_and_inference_mode():
    holder, x = Held(Layer()).eval(), torch.randn(2, 3, D)
    eager = holder(x)
    with torch.autocast("cpu", torch.bfloat16):
        low = holder(x)
    report = swiglu.patch(holder)
    with torch.autocast("cpu", torch.bfloat16):
        assert (holder(x) - low).abs().max() <= 2**-6 * low.abs().max()
    assert report.fallbacks == 0
    with torch.inference_mode():
        torch.testing.assert_close(holder(x), eager)
    torch.testing.assert_close(torch.utils.checkpoint.checkpoint(holder, x.requires_grad_(), use_reentrant=False), eager)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(holder, fullgraph=True, backend="eager")(x), eager)
    torch.testing.assert_close(torch.export.export(holder, (x,)).module()(x), eager)
    torch.testing.assert_close(torch.jit.trace(holder, (x.detach(),), check_trace=False)(x), eager)
    torch.testing.assert_close(torch.func.vmap(holder)(x[None])[0], eager)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu", F.silu])
def test_layers_of_pytorch(activation, norm_first):
    options = {"activation": activation, "norm_first": norm_first, "batch_first": True, "dropout": 0.0}
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 4, FF, **options), 2, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, 4, FF, **options), 2)
    model, x = nn.ModuleDict({"encoder": encoder, "decoder": decoder}), torch.randn(2, 5, D)
    run = lambda: model["decoder"](x, model["encoder"](x))  # noqa: E731
    eager = run()
    report = swiglu.patch(model)
    assert len(report.replaced) == 4
    torch.testing.assert_close(run(), eager)
    assert report.fallbacks == 0
    with torch.no_grad():
        torch.testing.assert_close(run(), eager)  # the encoder's fast path reads the weights itself
        model.eval()
        torch.testing.assert_close(run(), eager)


class Norm(Layer):
    def forward(self, x, mask=None):
        return x + self.fc2(F.layer_norm(self.activation(self.fc1(x)), (FF,)))


class Looks(Layer):
    def forward(self, x, mask=None):
        h = self.activation(self.fc1(self.norm(x)))
        return x + self.fc2(h) if h.isfinite().all() else x


class UsedTwice(Layer):
    def forward(self, x, mask=None):
        h = self.activation(self.fc1(self.norm(x)))
        return x + self.fc2(h) + h.mean()


class Constant(Layer):
    def forward(self, x, mask=None):
        return x + self.fc2(self.activation(self.fc1(self.norm(x))) / 8)


@pytest.mark.parametrize(
    "cls, reason",
    [(Norm, "layer_norm"), (Looks, r"isfinite|reads .all"), (UsedTwice, r"mean\(activation\(fc1"), (Constant, "/ 8")],
)
def test_one_operation_more_is_left(cls, reason):
    holder = Held(cls())
    report = swiglu.patch(holder)
    assert not report.replaced and type(holder.layer.fc1) is nn.Linear
    assert len(report.left) == 1 and report.left[0].name == "layer"
    assert re.search(reason, report.left[0].reason), report.left[0].reason


@pytest.mark.parametrize("targets", [["fc1"], ["fc2"], ["fc1", "fc2"]])
def test_adapters(targets):
    """Attached after patching they see products that are computed; a model that has them is left, with the reason."""
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=targets, init_lora_weights=False)
    outcomes = []
    for way in ("eager", "after", "before"):
        model = made("opt")
        if way == "after":
            assert len(swiglu.patch(model).replaced) == 2
        torch.manual_seed(1)
        model = peft.get_peft_model(model, config)
        if way == "before":
            report = swiglu.patch(model)
            assert not report.replaced and len(report.left) == 2 and "adapters are attached" in report.left[0].reason
        y = model(torch.arange(3, 12)[None]).last_hidden_state
        y.square().sum().backward()
        outcomes.append([y.detach(), *(p.grad for p in model.parameters() if p.grad is not None)])
    for other in outcomes[1:]:
        assert len(other) == len(outcomes[0]) > 1
        for a, b in zip(other, outcomes[0]):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * float(b.abs().max()))
