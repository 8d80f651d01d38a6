# SPDX-License-Identifier: Apache-2.0
"""A feed-forward block in double precision with NumPy, and how far an f32 evaluation may be from it."""
import math

import numpy as np

EPS = 2.0**-24
ACT_ULPS = 16  # what an f32 activation may add, in units of EPS * (|act| + |a|)

erf = np.vectorize(math.erf)


def softplus(v):
    return np.log1p(np.exp(v))


def xielu(a, values):
    """transformers XIELUActivation: the file has alpha_p and alpha_n before their softplus."""
    alpha_p, alpha_n, beta, eps = values
    p, n = softplus(alpha_p), beta + softplus(alpha_n)
    return np.where(a > 0, p * a * a + beta * a, (np.expm1(np.minimum(a, eps)) - a) * n + beta * a)


ACT = {
    "silu": lambda a: a / (1 + np.exp(-a)),
    "gelu": lambda a: a * (1 + erf(a / math.sqrt(2))) / 2,
    "gelu_tanh": lambda a: a * (1 + np.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a**3))) / 2,
    "relu": lambda a: np.maximum(a, 0),
    "relu2": lambda a: np.maximum(a, 0) ** 2,
}


def _product(x, dx, w, bias):
    """x w^T + bias and the bound of its error when x is off by dx: K + 1 roundings of the sum of magnitudes."""
    y = x @ w.T + (0 if bias is None else bias)
    size = np.abs(x) @ np.abs(w).T + (0 if bias is None else np.abs(bias))
    return y, (w.shape[1] + 1) * EPS * size + dx @ np.abs(w).T


def evaluate(x, act, up, down, gate=None, up_bias=None, down_bias=None, gate_bias=None):
    """y and its bound. act: a function of an array. The error of act's argument is followed by trying both ends, which
    is what it can do since every activation here is monotone outside one dip that the slope 1.2 covers."""
    x, up, down = (np.asarray(v, np.float64) for v in (x, up, down))
    u, du = _product(x, np.zeros_like(x), up, up_bias)
    a, da = (u, du) if gate is None else _product(x, np.zeros_like(x), np.asarray(gate, np.float64), gate_bias)
    f = act(a)
    df = np.maximum(np.abs(act(a + da) - f), np.abs(act(a - da) - f)) + 1.2 * da
    df += ACT_ULPS * EPS * (np.abs(f) + np.abs(a))
    h, dh = (f, df) if gate is None else (f * u, df * np.abs(u) + np.abs(f) * du + df * du + EPS * np.abs(f * u))
    return _product(h, dh, down, down_bias)


def assert_close(y, expected):
    want, bound = expected
    assert y.shape == want.shape and np.isfinite(y).all()
    off = np.abs(y - want) / bound
    assert off.max() <= 1, f"worst |y - expected| / bound is {off.max():.3g} at {np.unravel_index(off.argmax(), off.shape)}"
    assert bound.max() < 1e-3 * np.abs(want).max()  # a bound that allowed anything would prove nothing
