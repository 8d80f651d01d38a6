# SPDX-License-Identifier: Apache-2.0
"""Every block of every family is replaced, and computes what it computed."""
import copy

import numpy as np
import pytest
import swiglu
import torch
from families import FAMILIES, LAYERS, blocks, make, tokens
from swiglu.torch.recipe import parts_of, tensors


@pytest.mark.parametrize("family", FAMILIES)
def test_all_blocks_are_replaced(family):
    model = make(family)
    classes = [type(module) for _, module in blocks(model)]
    report = swiglu.patch(model)
    assert len(report.replaced) == LAYERS and report.left == []
    assert {(e.layout, e.activation) for e in report.replaced} == {FAMILIES[family][3:]}
    with torch.no_grad():
        model(tokens())
    assert report.fallbacks == 0
    for (_, module), original in zip(blocks(model), classes):
        assert isinstance(module, original) and type(module) is not original
    assert swiglu.restore(model) == LAYERS
    assert [type(module) for _, module in blocks(model)] == classes


def array(tensor):
    return None if tensor is None else tensor.detach().numpy()


@pytest.mark.parametrize("family", FAMILIES)
def test_block_is_within_the_bound_of_eager(family):
    """Eager adds the same products in another order, so it keeps the bound too (depths here are below one chunk, where
    gamma(K) = K u holds for every order): the two are at most twice the bound apart."""
    model = make(family)
    given = {}
    for name, module in blocks(model):
        module.register_forward_pre_hook(lambda m, args, name=name: given.__setitem__(name, args[0].clone()))
    with torch.no_grad():
        model(tokens())
        eager = {name: module(given[name]) for name, module in blocks(model)}
        swiglu.patch(model)
        for name, module in blocks(model):
            y = module(given[name])
            recipe = module._swiglu.recipe
            parts = [array(tensor) for tensor in parts_of(module, recipe)]
            reference, bound = swiglu.reference(
                given[name].numpy(),
                *parts[:3],
                activation=recipe.activation,
                layout=recipe.layout,
                **dict(zip(("gate_bias", "up_bias", "down_bias"), parts[3:])),
            )
            assert np.all(np.abs(y.numpy() - reference) <= bound)
            assert np.all(np.abs(y.numpy() - eager[name].numpy()) <= 2 * bound)


def losses_and_gradients(model, training):
    model.train(training)
    model.zero_grad()
    torch.manual_seed(7)
    ids = tokens()
    out = model(ids, labels=ids)
    out.loss.backward()
    return out.logits.detach().double(), {name: p.grad.double() for name, p in model.named_parameters()}


def assert_as_good_as(ours, eager, exact, what):
    """Both are the same roundings of the same sums in another order, so their distances from double precision have the same
    size; 4 leaves room for luck, 2^-20 for tensors where eager happens to be exact."""
    far, near = (float((t - exact).norm()) for t in (ours, eager))
    assert far <= 4 * near + 2**-20 * float(exact.norm()), f"{what}: {far:.3g} from exact, eager {near:.3g}"


@pytest.mark.parametrize("policy", ["recompute", "keep"])
@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_and_gradients_of_the_model(family, policy):
    """Dropout is off here: an f64 model draws other masks."""
    model = make(family, **({"resid_pdrop": 0, "attn_pdrop": 0, "embd_pdrop": 0} if family == "gpt2" else {}))
    exact = losses_and_gradients(copy.deepcopy(model).double(), True)
    eager = losses_and_gradients(model, True)
    report = swiglu.patch(model, policy=policy)
    ours = losses_and_gradients(model, True)
    assert report.fallbacks == 0
    assert_as_good_as(ours[0], eager[0], exact[0], "logits")
    for name, gradient in ours[1].items():
        assert_as_good_as(gradient, eager[1][name], exact[1][name], name)


@pytest.mark.parametrize("family", ["gpt2", "starcoder2"])
def test_dropout_is_the_model_s_own(family):
    """The same seed drops the same outputs, and only in training."""
    changes = {"resid_pdrop": 0.5} if family == "gpt2" else {"residual_dropout": 0.5}
    module = blocks(make(family, **changes))[0][1]
    x = torch.randn(3, 64)
    outputs = []
    for patched in (False, True):
        if patched:
            swiglu.patch(holder := torch.nn.Sequential(module))
            assert len(swiglu.patch(holder).replaced) == 1
        torch.manual_seed(3)
        outputs.append((module.eval()(x), module.train()(x)))
    for eager, ours in zip(*outputs):
        assert torch.equal(eager == 0, ours == 0) and torch.allclose(eager, ours, atol=1e-6)
    assert (outputs[1][1] == 0).any() and not (outputs[1][0] == 0).any()


def test_bf16_and_f16_models():
    for dtype in (torch.bfloat16, torch.float16):
        model = make("llama", dtype)
        exact = copy.deepcopy(model).double()
        with torch.no_grad():
            truth, eager = exact(tokens()).logits, model(tokens()).logits.double()
            report = swiglu.patch(model)
            ours = model(tokens()).logits
        assert len(report.replaced) == LAYERS and report.fallbacks == 0 and ours.dtype == dtype
        assert_as_good_as(ours.double(), eager, truth, dtype)


def test_a_wrong_block_is_noticed():
    """The comparison with double precision is sharp enough to see one term of one sum missing."""
    model = make("llama")
    with torch.no_grad():
        exact, eager = copy.deepcopy(model).double()(tokens()).logits, model(tokens()).logits.double()
        model.model.layers[1].mlp.down_proj.weight[5, 17] = 0
        swiglu.patch(model)
        ours = model(tokens()).logits.double()
    with pytest.raises(AssertionError):
        assert_as_good_as(ours, eager, exact, "logits")


def test_every_parameter_of_the_block_is_known():
    for family in FAMILIES:
        model = make(family)
        swiglu.patch(model)
        for _, module in blocks(model):
            assert {id(t) for t in tensors(module, module._swiglu.recipe)} == {id(p) for p in module.parameters()}
