# SPDX-License-Identifier: Apache-2.0
"""The block and its gradients in double precision, with a bound for each value (docs/numerics.md, accuracy).

First-order bounds of the contract's own operations: chains of fused multiply-adds, one rounding per product and store, the
activation within 2 ULP, its derivative within 4 ulp(max(|f'|, 1/8)). What is of second order is covered by SECOND.
"""
import math

import swiglu
import torch

U = 2.0**-24
CHAIN = 1024
SECOND = 1 + 2.0**-5
ROUNDING = {torch.float32: 0.0, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
SLOPE, CURVE = 1.2, 1.1  # above |act'| and |act''| of every smooth activation here (relu2: see below)


def gamma(depth):
    return (min(depth, CHAIN) + math.ceil(depth / CHAIN)) * U


def act(a, kind, alpha):
    return {
        "identity": lambda: a,
        "relu": lambda: torch.relu(a),
        "relu2": lambda: torch.relu(a) ** 2,
        "sigmoid": lambda: torch.sigmoid(a),
        "silu": lambda: a * torch.sigmoid(alpha * a),
        "gelu": lambda: a * (1 + torch.erf(a / math.sqrt(2))) / 2,
        "gelu_tanh": lambda: torch.nn.functional.gelu(a, approximate="tanh"),
    }[kind]()


def split(gate, up, gate_bias, up_bias, layout):
    """(gate, gate bias, up, up bias), each on its own; gate None where there is none."""
    if layout in ("separate", "ungated"):
        return gate, gate_bias, up, up_bias
    halves = {"gate_up": lambda t: t.chunk(2), "up_gate": lambda t: t.chunk(2)[::-1],
              "interleaved": lambda t: (t[0::2], t[1::2])}[layout]
    (g, u), (gb, ub) = halves(gate), (None, None) if gate_bias is None else halves(gate_bias)
    return g, gb, u, ub


def join(gate, up, layout):
    if layout == "interleaved":
        return torch.stack([gate, up], 1).flatten(0, 1)
    return torch.cat([gate, up] if layout == "gate_up" else [up, gate])


class Exact:
    """y, dx and the gradients of the parts, as doubles, and the bound of each. low: compute in bf16, with its roundings."""

    def __init__(self, x, parts, dy, activation="silu", layout="separate", low=False):
        spec = swiglu.Activation.named(activation)
        gate, up, down, gate_bias, up_bias, down_bias = [None if p is None else p.detach().double() for p in parts]
        out_rounding = ROUNDING[x.dtype]
        self.x, self.dy = x.detach().double().flatten(0, -2), dy.detach().double().flatten(0, -2)
        x, dy = self.x, self.dy
        wg, bg, wu, bu = split(gate, up, gate_bias, up_bias, layout)
        self.low = 2.0**-8 if low else 0.0
        up_value, up_error = self.product(x, wu, bu)
        if wg is None:
            a, slope, a_error, slope_error = self.activate(up_value, up_error, spec)
            h, h_error = a, a_error
        else:
            gate_value, gate_error = self.product(x, wg, bg)
            a, slope, a_error, slope_error = self.activate(gate_value, gate_error, spec)
            u = up_value.clamp(spec.up_lo, spec.up_hi) + spec.up_offset
            u_error = up_error + U * u.abs()
            h, h_error = a * u, a_error * u.abs() + a.abs() * u_error + U * (a * u).abs()
        h_error = SECOND * (h_error + self.low * h.abs())
        self.m, f = h.shape
        y, y_error = h @ down.T, h_error @ down.abs().T + gamma(f) * (h.abs() @ down.abs().T)
        if down_bias is not None:
            y = y + down_bias
        self.y = y, SECOND * y_error + (2 * U + out_rounding) * y.abs()
        dh = dy @ down
        dh_error = gamma(dy.shape[1]) * (dy.abs() @ down.abs()) + U * dh.abs()
        if wg is None:
            dup = dh * slope
            dup_error = dh_error * slope.abs() + dh.abs() * slope_error + 2 * U * dup.abs()
            sides = [(dup, dup_error, wu)]
        else:
            dgate = dh * u * slope
            dgate_error = (dh_error * (u * slope).abs() + dh.abs() * (u_error * slope.abs() + u.abs() * slope_error)
                           + 3 * U * dgate.abs())
            inside = (up_value >= spec.up_lo) & (up_value <= spec.up_hi)
            dup = dh * a * inside
            dup_error = (dh_error * a.abs() + dh.abs() * a_error + 2 * U * dup.abs()) * inside
            sides = [(dgate, dgate_error, wg), (dup, dup_error, wu)]
        sides = [(d, SECOND * (e + self.low * d.abs()), w) for d, e, w in sides]
        magnitude = sum(d.abs() @ w.abs() for d, _, w in sides)
        dx = sum(d @ w for d, _, w in sides)
        dx_error = sum(e @ w.abs() for _, e, w in sides) + gamma(2 * f) * magnitude
        self.dx = dx, SECOND * dx_error + (2 * U + out_rounding) * dx.abs()
        weights = [self.weight(d, e, x) for d, e, _ in sides]
        biases = [self.bias(d, e) for d, e, _ in sides]
        down_gradient = self.weight(dy, torch.zeros_like(dy), h, h_error)
        self.parts = [None, weights[-1], down_gradient, None, biases[-1], self.bias(dy, torch.zeros_like(dy))]
        if layout == "separate":
            self.parts[0], self.parts[3] = weights[0], biases[0]
        elif layout != "ungated":
            self.parts[0] = tuple(join(g, u, layout) for g, u in zip(*weights))
            self.parts[3] = tuple(join(g, u, layout) for g, u in zip(*biases))
            self.parts[1] = self.parts[4] = None

    def product(self, x, w, bias):
        value = x @ w.T
        error = gamma(x.shape[1]) * (x.abs() @ w.abs().T)
        if bias is not None:
            value = value + bias
        return value, error + 2 * U * value.abs()

    def activate(self, value, error, spec):
        """(act, act', and the errors of both) with the clamps of the gate side."""
        v = value.detach().clone().requires_grad_()
        g = v if spec.clamp_after else v.clamp(spec.gate_lo, spec.gate_hi)
        a = act(g, spec.kind, spec.alpha)
        if spec.clamp_after:
            a = a.clamp(spec.gate_lo, spec.gate_hi)
        (slope,) = torch.autograd.grad(a.sum(), v)
        a = a.detach()
        steep, curve = (2 * value.abs() + 1, 2.0) if spec.kind == "relu2" else (SLOPE * max(1, spec.alpha), CURVE * spec.alpha**2)
        slope_error = curve * error + 4 * 2 * U * slope.abs().clamp_min(0.125)
        return a, slope, steep * error + 4 * U * a.abs(), slope_error * (slope != 0)

    def weight(self, d, d_error, x, x_error=None):
        error = d_error.T @ x.abs() + gamma(self.m) * (d.abs().T @ x.abs())
        if x_error is not None:
            error = error + d.abs().T @ x_error
        value = d.T @ x
        return value, SECOND * error + 2 * U * value.abs()

    def bias(self, d, d_error):
        return d.sum(0), SECOND * (d_error.sum(0) + gamma(self.m) * d.abs().sum(0)) + 2 * U * d.sum(0).abs()


def assert_close(actual, expected, name, rounding=0.0):
    """actual within the bound of (value, bound); rounding: of a store after the computation, such as to a .grad in bf16."""
    value, bound = expected
    value = value.reshape(actual.shape)
    bound = bound.reshape(actual.shape) + rounding * value.abs() + 2.0**-120
    error = (actual.detach().double() - value).abs()
    assert torch.all(error <= bound), f"{name}: error {error.max():.3g}, {(error / bound).max():.3g} of the bound"
