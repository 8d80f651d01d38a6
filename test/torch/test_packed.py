# SPDX-License-Identifier: Apache-2.0
"""Packed copies for inference: used, dropped, and never stale."""
import copy
import ctypes
import gc
import io
import pickle

import pytest
import swiglu
import torch
from swiglu.torch import FFN, PackedWeights, ffn, packed, repack
from torch import nn
from torch.nn.utils import prune

D, F = 48, 160  # weights larger than what is sampled


def fresh_result(module, x):
    """From the raw weights, without any copy."""
    with torch.enable_grad():
        return ffn(x, module.gate_proj.weight, module.up_proj.weight, module.down_proj.weight, module.gate_proj.bias,
                   module.up_proj.bias, module.down_proj.bias, activation=module.activation).detach()


def copies(module):
    storage = module.down_proj.weight.untyped_storage().data_ptr()
    return [b for blocks in packed._blocks.values() for b in blocks if storage in b.storages]


@pytest.fixture(params=[torch.float32, torch.bfloat16])
def module(request):
    return FFN(D, F, bias=True, dtype=request.param).eval()


@pytest.fixture
def x(module):
    return torch.randn(5, D).to(module.up_proj.weight.dtype)


def evaluate(module, x):
    with torch.no_grad():
        return module(x)


def test_packs_once(module, x):
    y = evaluate(module, x)
    (block,) = copies(module)
    assert torch.equal(evaluate(module, x), y) and copies(module) == [block]
    assert torch.equal(y, fresh_result(module, x))


def test_no_copy_in_training_or_with_gradients(module, x):
    module(x)
    assert not copies(module)
    module.train()
    evaluate(module, x)
    assert not copies(module)


def mutate_optimizer(**options):
    def mutate(module, x):
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, **options)
        module.train()
        module(x).square().sum().backward()
        optimizer.step()
        module.eval()

    return mutate


def mutate_optimizer_in_eval(module, x):
    """Fused AdamW leaves the version counter alone; without train() only the forward with gradients tells."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, fused=True)
    module(x).square().sum().backward()
    optimizer.step()


def mutate_gradients_from_elsewhere(module, x):
    """No forward with gradients, no train(): the sampled bytes tell."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, fused=True)
    for p in module.parameters():
        p.grad = torch.randn_like(p)
    optimizer.step()


def mutate_numpy(module, x):
    bits = {4: torch.int32, 2: torch.int16}[module.up_proj.weight.element_size()]
    module.up_proj.weight.detach().view(bits).numpy()[...] ^= 1 << (8 * bits.itemsize - 8)  # another exponent


def mutate_set(module, x):
    with torch.no_grad():
        module.down_proj.weight.set_(torch.randn_like(module.down_proj.weight))


def mutate_new_storage_at_an_old_address(module, x):
    for _ in range(2):
        shape = module.up_proj.weight.shape
        module.up_proj.weight = None
        gc.collect()
        module.up_proj.weight = nn.Parameter(torch.randn(shape, dtype=module.down_proj.weight.dtype))
        with torch.no_grad():
            module(x)


def no_grad(change):
    def mutate(module, x):
        with torch.no_grad():
            change(module)

    return mutate


def load(**options):
    def mutate(module, x):
        other = FFN(D, F, bias=True, dtype=module.up_proj.weight.dtype)
        module.load_state_dict(other.state_dict(), **options)

    return mutate


def load_child(module, x):
    other = nn.Linear(D, F, dtype=module.up_proj.weight.dtype)
    module.up_proj.load_state_dict(other.state_dict())


MUTATIONS = {
    "optimizer": mutate_optimizer(),
    "optimizer foreach": mutate_optimizer(foreach=True),
    "optimizer fused": mutate_optimizer(fused=True),
    "optimizer fused in eval": mutate_optimizer_in_eval,
    "optimizer fused, gradients from elsewhere": mutate_gradients_from_elsewhere,
    "numpy": mutate_numpy,
    "data.copy_": lambda m, x: m.gate_proj.weight.data.copy_(torch.randn_like(m.gate_proj.weight)),
    "data.mul_": lambda m, x: m.gate_proj.weight.data.mul_(1.5),
    "data.add_ on a bias": lambda m, x: m.gate_proj.bias.data.add_(1),
    "data =": lambda m, x: setattr(m.up_proj.weight, "data", torch.randn_like(m.up_proj.weight)),
    "one value in place": no_grad(lambda m: m.up_proj.weight[7, 9].mul_(3)),
    "one value of a view": no_grad(lambda m: m.down_proj.weight.view(-1)[100:101].fill_(2)),
    "fill": no_grad(lambda m: m.down_proj.weight.fill_(0.1)),
    "bias in place": no_grad(lambda m: m.up_proj.bias.add_(1)),
    "init": lambda m, x: nn.init.xavier_normal_(m.up_proj.weight),
    "set_": mutate_set,
    "new parameter": lambda m, x: setattr(m.up_proj, "weight", nn.Parameter(torch.randn_like(m.up_proj.weight))),
    "old address": mutate_new_storage_at_an_old_address,
    "bias removed": lambda m, x: setattr(m.up_proj, "bias", None),
    "load_state_dict": load(),
    "load_state_dict assign": load(assign=True),
    "load_state_dict of a child": load_child,
    "another dtype and back": lambda m, x: m.half().to(x.dtype),
    "_apply": lambda m, x: m._apply(lambda t: t * 2),
    "vector_to_parameters": lambda m, x: nn.utils.vector_to_parameters(
        torch.randn(sum(p.numel() for p in m.parameters()), dtype=x.dtype), m.parameters()),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_never_stale(module, x, name):
    y = evaluate(module, x)
    MUTATIONS[name](module, x)
    after = evaluate(module, x)
    assert torch.equal(after, fresh_result(module, x))
    assert name == "another dtype and back" or not torch.equal(after, y)


def test_transposed_in_place(x):
    """data of the same address, shape and version with other strides."""
    module = FFN(D, D).eval()
    x = torch.randn(3, D)
    y = evaluate(module, x)
    module.up_proj.weight.data = module.up_proj.weight.data.t()
    assert torch.equal(evaluate(module, x), fresh_result(module, x)) and not torch.equal(evaluate(module, x), y)


def test_eval_mode_with_gradients_packs_weights_that_stay(module, x):
    """The second call does, and its bits and gradients are those of the first."""

    def gradients():
        leaf = x.clone().requires_grad_()
        y = module(leaf)
        return y, torch.autograd.grad(y.sum(), leaf)[0]

    first = module(x)
    assert not copies(module)
    assert torch.equal(module(x), first) and len(copies(module)) == 1
    y, dx = gradients()
    assert torch.equal(y, first) and torch.equal(dx, gradients()[1]) and not copies(module)
    module.train()
    assert torch.equal(gradients()[1], dx) and not copies(module)


def test_training_in_eval_mode_packs_nothing(module, x):
    optimiser = torch.optim.AdamW(module.parameters(), lr=0.1, fused=True)
    twin = copy.deepcopy(module).train()
    other = torch.optim.AdamW(twin.parameters(), lr=0.1, fused=True)
    for step in range(4):
        for each, steps in ((module, optimiser), (twin, other)):
            for _ in range(2):  # micro-batches
                each(x).float().square().sum().backward()
                assert not copies(each)
            steps.step()
            steps.zero_grad()
        assert all(torch.equal(p, q) for p, q in zip(module.parameters(), twin.parameters())), step
        with torch.no_grad():
            assert torch.equal(module(x), twin(x))  # a validation, which packs


def test_frozen_weights_are_packed_with_gradients_on(module, x):
    module.requires_grad_(False)
    y = module(x)
    assert len(copies(module)) == 1 and torch.equal(y, fresh_result(module, x))


EDITS = {"an element": lambda w: w[3, 5].fill_(100.0), "a row": lambda w: w[7].mul_(3), "all": lambda w: w.mul_(2)}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("which", ["gate_proj", "up_proj", "down_proj", "bias"])
def test_inference_tensors_are_not_packed(edit, which):
    """They have no version counter: no copy, and no edit is missed, whether all or one of the weights are such."""
    x = torch.randn(3, D)
    with torch.inference_mode():
        made = FFN(D, F, bias=True).eval()
    mixed = FFN(D, F, bias=True).eval()
    with torch.inference_mode():
        if which == "bias":
            mixed.up_proj.bias = nn.Parameter(torch.randn(F))
        else:
            like = getattr(mixed, which).weight
            getattr(mixed, which).weight = nn.Parameter(torch.randn(like.shape))
    for module in (made, mixed):
        with torch.inference_mode():
            y = module(x)
            weight = module.up_proj.bias[None].expand(F, -1) if which == "bias" else getattr(module, which).weight
            if which == "bias":
                module.up_proj.bias.mul_(2)
            else:
                EDITS[edit](weight)
            after = module(x)
            children = module._by_children(x)
        assert not copies(module)
        assert torch.allclose(after, children, rtol=1e-4, atol=1e-4) and not torch.equal(after, y)


def test_the_function_takes_inference_tensors():
    with torch.inference_mode():
        x, *w = torch.randn(3, D), torch.randn(F, D), torch.randn(F, D), torch.randn(D, F)
        for run in (ffn, torch.compile(ffn, fullgraph=True)):
            y = run(x, *w, packed=True)
            w[1][3, 5] += 100
            assert torch.equal(run(x, *w, packed=True), ffn(x, *w)) and not torch.equal(y, ffn(x, *w))


def test_what_escapes_and_repack(module, x):
    """A write behind the counter between the sampled lines: the documented limit, and its cure."""
    y = evaluate(module, x)
    (block,) = copies(module)
    weight = module.up_proj.weight
    sampled = {ctypes.addressof(line) + i for line in block._lines for i in range(ctypes.sizeof(line))}
    size = weight.element_size()
    places = (range(weight.data_ptr() + i * size, weight.data_ptr() + (i + 1) * size) for i in range(weight.numel()))
    missed = next(i for i, place in enumerate(places) if sampled.isdisjoint(place))
    weight.data.view(-1)[missed] = 100
    assert torch.equal(evaluate(module, x), y)
    swiglu.repack(nn.Sequential(module))
    assert torch.equal(evaluate(module, x), fresh_result(module, x)) and not torch.equal(evaluate(module, x), y)


def test_dropped_on(module, x):
    for drop in (lambda: module.train(), lambda: nn.Sequential(module).train(), lambda: repack(module),
                 lambda: module(x).sum().backward(), lambda: module.float().to(x.dtype),
                 lambda: module.load_state_dict(module.state_dict())):
        module.eval()
        evaluate(module, x)
        assert len(copies(module)) == 1
        drop()
        assert not copies(module)


def test_memory_goes_with_the_module():
    module = FFN(D, F).eval()
    evaluate(module, torch.randn(2, D))
    pointer = module.down_proj.weight.data_ptr()
    assert pointer in packed._blocks and packed.packed_bytes() > 0
    del module
    gc.collect()
    assert pointer not in packed._blocks


def test_memory_goes_with_weights_of_a_function():
    weights = [torch.randn(s) for s in ((F, D), (F, D), (D, F))]
    pointer = weights[2].data_ptr()
    with torch.no_grad():
        ffn(torch.randn(2, D), *weights, packed=True)
        ffn(torch.randn(2, D), *[w.t().contiguous().t() for w in weights], packed=True)
    assert pointer in packed._blocks
    del weights
    gc.collect()
    assert pointer not in packed._blocks


def test_views_keep_their_copy():
    """A transposed view is a new tensor on each call; its memory is not."""
    stored = [nn.Parameter(torch.randn(s)) for s in ((D, F), (D, F), (F, D))]
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            x = torch.randn(2, D)
            y = ffn(x, *[s.t() for s in stored], packed=True)
            block = packed._blocks[stored[2].data_ptr()]
            gc.collect()
            assert torch.equal(ffn(x, *[s.t() for s in stored], packed=True), y)
            assert packed._blocks[stored[2].data_ptr()] is block


def test_two_functions_of_the_same_weights():
    weights = [torch.randn(s) for s in ((F, D), (F, D), (D, F))]
    x = torch.randn(2, D)
    with torch.no_grad():
        for _ in range(2):
            for activation in ("silu", "gelu"):
                assert torch.equal(ffn(x, *weights, activation=activation, packed=True), ffn(x, *weights, activation=activation))


def test_c154_copies_and_pickles(module, x):
    y = evaluate(module, x)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    others = [copy.deepcopy(module), pickle.loads(pickle.dumps(module)), torch.load(file, weights_only=False)]
    for other in others:
        assert torch.equal(evaluate(other, x), y)
    with torch.no_grad():
        module.up_proj.weight.zero_()
    del module
    gc.collect()
    for other in others:
        assert torch.equal(evaluate(other, x), y)
        assert list(other.state_dict()) == [f"{n}_proj.{p}" for n in ("gate", "up", "down") for p in ("weight", "bias")]


def test_parametrised_and_pruned_children(x, module):
    nn.utils.parametrizations.weight_norm(module.up_proj)
    prune.l1_unstructured(module.down_proj, "weight", amount=0.5)
    y = evaluate(module, x)
    assert torch.equal(y, module._by_children(x))
    with torch.no_grad():
        module.up_proj.parametrizations.weight.original0.mul_(2)
    assert torch.equal(evaluate(module, x), module._by_children(x)) and not torch.equal(evaluate(module, x), y)


def test_training_lowers_a_loss_with_every_optimizer():
    torch.set_num_threads(1)
    for make in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad, torch.optim.RMSprop):
        torch.manual_seed(3)
        module = FFN(8, 16, bias=True)
        x = torch.randn(64, 8)
        target = torch.sin(x)
        optimizer = make(module.parameters(), lr=0.02)
        losses = []
        for _ in range(30):
            optimizer.zero_grad()
            loss = (module(x) - target).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0], make


def test_base_class_for_other_modules():
    class Packed(PackedWeights):
        def __init__(self):
            super().__init__()
            self.gate_up, self.down_proj = nn.Linear(D, 2 * F, bias=False), nn.Linear(F, D, bias=False)

        def forward(self, x):
            return ffn(x, self.gate_up.weight, None, self.down_proj.weight, layout="gate_up", packed=not self.training)

    module, x = Packed().eval(), torch.randn(2, D)
    y = evaluate(module, x)
    assert len(copies(module)) == 1 and torch.equal(y, module(x).detach())
    evaluate(module, x)
    module.train()
    assert not copies(module)
