# SPDX-License-Identifier: Apache-2.0
"""Eager PyTorch as a side of a comparison."""
from importlib.metadata import version
from importlib.util import find_spec

from cell import Side

NAME, DTYPES = "PyTorch", ("f32", "bf16")  # f16 takes it tens to hundreds of times as long as f32


def missing():
    return "" if find_spec("torch") else "PyTorch is not installed here"


def about():
    return f"PyTorch {version('torch')}"


def side(cell, data):
    import torch
    from torch.nn import functional

    torch.set_num_threads(cell.threads)
    activation = {"silu": functional.silu, "gelu_tanh": lambda g: functional.gelu(g, approximate="tanh")}[data.activation]

    def tensor(array):
        t = torch.from_numpy(array)
        return t.view(torch.bfloat16) if data.dtype == "bf16" else t

    class TorchSide(Side):
        def __init__(self):
            super().__init__(NAME)
            x, weights = tensor(data.x), [tensor(w) for w in (data.gate, data.up, data.down)]
            for _ in range(self.n_copies(cell, sum(w.nbytes for w in weights))):
                self.runs.append(self.forward(x, *(w.clone() for w in weights)))

        def forward(self, x, gate, up, down):
            def run():
                self.y = functional.linear(activation(functional.linear(x, gate)) * functional.linear(x, up), down)

            return torch.inference_mode()(run)

        def output(self):
            self.run(1)
            return self.y.float().numpy()

        def close(self):
            self.runs = []

    return TorchSide()
