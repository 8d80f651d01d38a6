# SPDX-License-Identifier: Apache-2.0
"""SmolLM2-135M as transformers reads it from GGUF: every block replaced, the same words."""
import copy
import os
from pathlib import Path

import pytest
import swiglu
import torch

pytest.importorskip("gguf")
LAYERS, NEW = 30, 64
PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a village by the sea, there lived an old clockmaker who",
)


@pytest.fixture(scope="module")
def loaded():
    path = os.environ.get("SWIGLU_MODEL")
    if not path:
        pytest.skip("SWIGLU_MODEL is not set")
    import transformers

    folder, name = str(Path(path).parent), Path(path).name
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # other tests may be running; the bits are the same
    yield (
        transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32),
        transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name),
    )
    torch.set_num_threads(threads)


def generate(model, ids):
    return model.generate(ids, max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0)


def test_the_same_words(loaded):
    """Greedy generation picks the largest logit. Each way of computing is off from double precision by some error; where the
    first two logits are closer than both errors together, either token is right, and only there the two may part."""
    model, tokenizer = loaded
    prompts = [tokenizer(text, return_tensors="pt").input_ids for text in PROMPTS]
    eager = [generate(model, ids) for ids in prompts]
    with swiglu.patched(model) as report:
        assert len(report.replaced) == LAYERS and report.left == []
        ours = [generate(model, ids) for ids in prompts]
        with torch.no_grad():
            our_logits = [model(ids).logits[0].double() for ids in eager]
        assert report.fallbacks == 0
    exact_model = copy.deepcopy(model).double()
    for ids, words, other, logits in zip(prompts, eager, ours, our_logits):
        with torch.no_grad():
            exact, plain = exact_model(words).logits[0], model(words).logits[0].double()
        far, near = ((t - exact).abs().amax(dim=-1) for t in (logits, plain))
        # the same roundings in another order: errors of one size (test_families.py)
        assert float((logits - exact).norm()) <= 4 * float((plain - exact).norm())
        assert words.shape[1] == ids.shape[1] + NEW
        differ = (words != other)[0].nonzero()
        if len(differ):
            position = int(differ[0]) - 1  # whose logits chose this token
            top = exact[position].topk(2).values
            assert float(top[0] - top[1]) <= 2 * float(far[position] + near[position])


def test_a_training_step(loaded):
    """Gradients of all weights of the first, a middle and the last block against double precision, as eager's are."""
    model, tokenizer = loaded
    model = copy.deepcopy(model)
    ids = tokenizer(PROMPTS[2], return_tensors="pt").input_ids
    watched = [f"model.layers.{i}.mlp.{name}_proj.weight" for i in (0, 15, 29) for name in ("gate", "up", "down")]

    def gradients(m):
        m.train()
        m.zero_grad()
        m(ids, labels=ids).loss.backward()
        return [m.get_parameter(name).grad.double() for name in watched]

    eager = gradients(model)
    report = swiglu.patch(model)
    ours = gradients(model)
    assert report.fallbacks == 0
    swiglu.restore(model)
    exact = gradients(model.double())
    for name, a, b, c in zip(watched, ours, eager, exact):
        assert float((a - c).norm()) <= 4 * float((b - c).norm()), name
