# SPDX-License-Identifier: Apache-2.0
"""The encoders: blocks of 32 are those of the Python package gguf, byte for byte; K formats err no more than the encoder
that everybody uses."""
import ctypes

import gguf
import numpy as np
import pytest

from capi import abi, library, new

T = gguf.GGMLQuantizationType
SAME_AS_GGUF = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.MXFP4]
E_SHAPE, E_UNSUPPORTED = 20, 31
N = 1 << 16


def encode(qtype, values):
    values = np.ascontiguousarray(values, np.float32).reshape(-1)
    elems, size = gguf.GGML_QUANT_SIZES[qtype]
    out = np.full(values.size // elems * size, 0xA5, np.uint8)
    status = library.swiglu_encode(int(qtype), values.ctypes.data, values.size, out.ctypes.data)
    assert status == 0 or (out == 0xA5).all()
    return out if status == 0 else status


def decode(qtype, raw):
    elems, size = gguf.GGML_QUANT_SIZES[qtype]
    out = np.empty(raw.size // size * elems, np.float32)
    assert library.swiglu_decode(int(qtype), raw.ctypes.data, out.size, out.ctypes.data) == 0
    return out


def by_gguf(qtype, values):
    """In whole blocks. Two results of the reference are its machine's: an E8M0 exponent below 0, here 0, and what becomes of
    infinite quotients, for which the test has x86's answer."""
    blocks = np.ascontiguousarray(values, np.float32).reshape(-1, 32)
    with np.errstate(all="ignore"):
        raw = gguf.quants.quantize(blocks, qtype)
        if qtype == T.MXFP4:
            tiny = np.floor(np.log2(np.abs(blocks).max(axis=-1))) + 125 < 0
            least = np.float32(2**-128) * np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)
            q = np.abs(least - blocks[tiny][..., None]).argmin(axis=-1).astype(np.uint8)
            raw[tiny] = np.concatenate([np.zeros((len(q), 1), np.uint8), q[:, :16] | q[:, 16:] << 4], axis=1)
    return raw.reshape(-1)


def kinds_of_values():
    random = np.random.default_rng(20)
    normal = random.standard_normal(N).astype(np.float32)
    bits = random.integers(0, 2**32, N, np.uint64).astype(np.uint32)
    bits[(bits & 0x7F800000) == 0x7F800000] = 1
    few = random.choice(np.array([0.5, -0.5, 0.25, 1, -1, 2.5, -3], np.float32), N)
    sparse = np.where(random.random(N) < 0.02, normal, np.float32(0)) + np.float32(0)
    return {
        "normal": normal, "small": normal * np.float32(1e-3), "any bits": bits.view(np.float32), "ties": few,
        "one sign": np.abs(normal), "sparse": sparse, "zero": np.zeros(64, np.float32),
        "equal": np.repeat(normal[:64], 32), "huge": normal * np.float32(2.0**124),
        "f16 subnormal scales": normal * np.float32(2**-20), "scales near 2^-126": normal * np.float32(2**-124),
        "scales near 2^-128": normal * np.float32(2.0**-125), "subnormal": (bits & 0x807FFFFF).view(np.float32),
        "least": (bits & 0x80000007).view(np.float32) + np.float32(0),
    }  # fmt: skip


@pytest.mark.parametrize("kind", kinds_of_values())
@pytest.mark.parametrize("qtype", SAME_AS_GGUF, ids=lambda q: q.name)
def test_blocks_equal_gguf(qtype, kind):
    values = kinds_of_values()[kind]
    got, want = (raw.reshape(values.size // 32, -1) for raw in (encode(qtype, values), by_gguf(qtype, values)))
    differ = np.flatnonzero((got != want).any(axis=1))
    assert differ.size == 0, f"{differ.size} of {len(got)} blocks, first {differ[0]}: {got[differ[0]]} for {want[differ[0]]}"


def test_mxfp4_exponents_around_powers_of_two():
    """The reference takes floor(log2) of a rounded logarithm, which steps up a little below a power of two. Where exactly
    depends on its log2; away from that border by more than half a unit of that logarithm the result is certain."""
    top = np.array([np.ldexp(np.float32(1), k) for k in range(-120, 128)], np.float32)
    below = np.stack([(top.view(np.uint32) - j).view(np.float32) for j in range(0, 120)], axis=1).reshape(-1)
    exact = np.log2(below.astype(np.float64))
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    certain = (np.abs(exact + unit / 2 - np.round(exact)) > unit / 2) | (exact == np.round(exact))
    blocks = np.zeros((below.size, 32), np.float32)
    blocks[:, 3] = below
    got = encode(T.MXFP4, blocks).reshape(-1, 17)[certain]
    assert (got == by_gguf(T.MXFP4, blocks[certain]).reshape(-1, 17)).all()
    assert certain.sum() > certain.size / 3


@pytest.mark.parametrize("qtype", [q for q in T if q.name.lower() in ("q2_k", "q3_k", "q4_k", "q5_k", "q6_k", *(
    q.name.lower() for q in SAME_AS_GGUF))], ids=lambda q: q.name)
def test_what_cannot_be_encoded(qtype):
    elems = gguf.GGML_QUANT_SIZES[qtype][0]
    values = np.random.default_rng(3).standard_normal(2 * elems).astype(np.float32)
    for bad in (np.nan, np.inf, -np.inf):
        values[elems + 5] = bad
        assert encode(qtype, values) == E_UNSUPPORTED
    assert encode(qtype, values[: elems - 1]) == E_SHAPE


def test_floats_are_rounded_once():
    """Of every format the list has an encoder; of f32, f16, bf16 test_half.c looks at every value."""
    values = np.array([1, np.nan, -np.inf, 2**-149, 65520, -0.0], np.float32)
    assert encode(T.F32, values).view(np.uint32)[[1, 3, 5]].tolist() == [0x7FC00000, 1, 0x80000000]
    assert encode(T.F16, values).view(np.uint16).tolist() == [0x3C00, 0x7E00, 0xFC00, 0, 0x7C00, 0x8000]
    i = 0
    while (dtype := library.swiglu_dtype_at(i)) >= 0:
        info = new(abi.DtypeInfo)
        assert library.swiglu_dtype_query(dtype, ctypes.byref(info)) == 0
        assert not decode(T(dtype), encode(T(dtype), np.zeros(info.block_elems, np.float32))).any(), info.name
        i += 1


# ---- K formats ----

DISTRIBUTIONS = {
    "normal": lambda r: r.normal(0, 0.05, N), "laplace": lambda r: r.laplace(0, 0.03, N),
    "uniform": lambda r: r.uniform(-1, 1, N), "student": lambda r: r.standard_t(3, N) * 0.02,
    "shifted": lambda r: r.normal(0.2, 0.05, N),
}  # fmt: skip
# Relative errors of quantize_row_*_ref of the ggml in llama-cpp-python 0.3.36, for the values above.
GGML = {
    T.Q2_K: (0.298226, 0.344845, 0.232603, 0.354795, 0.115262),
    T.Q3_K: (0.151335, 0.175864, 0.125251, 0.191944, 0.094373),
    T.Q4_K: (0.071847, 0.084720, 0.054480, 0.092694, 0.025645),
    T.Q5_K: (0.036262, 0.043008, 0.027489, 0.046711, 0.012732),
    T.Q6_K: (0.017820, 0.021678, 0.013237, 0.025144, 0.011063),
}


def relative_error(qtype, values):
    off = decode(qtype, encode(qtype, values)).astype(np.float64) - values
    return np.sqrt(np.sum(off**2) / np.sum(values.astype(np.float64) ** 2))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("qtype", GGML, ids=lambda q: q.name)
def test_k_formats_err_no_more_than_ggml(qtype, name):
    """At most 1.02 times its squared error."""
    values = DISTRIBUTIONS[name](np.random.default_rng(1)).astype(np.float32)
    error = relative_error(qtype, values)
    assert error**2 <= 1.02 * GGML[qtype][list(DISTRIBUTIONS).index(name)] ** 2, error


@pytest.mark.parametrize("qtype", GGML, ids=lambda q: q.name)
def test_k_formats_at_any_magnitude(qtype):
    """Multiplied by a power of two, values are encoded to the same integers, as long as f16 can hold the scales."""
    values = np.random.default_rng(2).standard_normal(4096).astype(np.float32)
    error = relative_error(qtype, values)
    for power in (5, 9):
        scaled = decode(qtype, encode(qtype, np.ldexp(values, power)))
        assert np.array_equal(scaled, np.ldexp(decode(qtype, encode(qtype, values)), power)), power
    for power in (-12, -20, -60, -140, -149):  # the scales become subnormal in f16, then 0
        tiny = np.ldexp(values, power)
        off = decode(qtype, encode(qtype, tiny)) - tiny
        assert np.sum(off.astype(np.float64) ** 2) <= np.sum(tiny.astype(np.float64) ** 2), power
        assert power < -12 or relative_error(qtype, tiny) < 1.2 * error
    for power in (40, 110, 126):  # beyond f16: not finite, so that convert notices
        assert not np.isfinite(decode(qtype, encode(qtype, np.ldexp(values, power)))).all(), power
    assert error < 0.3


@pytest.mark.parametrize("qtype", GGML, ids=lambda q: q.name)
def test_k_formats_keep_the_largest(qtype):
    """One value far above the others is within half a step: 1 / 2 of the part's range by its number of steps, and the
    rounding of two scales, of at least 4 bits each."""
    steps = {T.Q2_K: 3, T.Q3_K: 7, T.Q4_K: 15, T.Q5_K: 31, T.Q6_K: 63}[qtype]
    values = np.random.default_rng(4).standard_normal((64, 256)).astype(np.float32) * np.float32(0.01)
    values[np.arange(64), np.arange(64) * 4 + 1] = np.where(np.arange(64) % 2, 50, -50)
    got = decode(qtype, encode(qtype, values)).reshape(64, 256)
    at = (np.arange(64), np.arange(64) * 4 + 1)
    assert (np.abs(got[at] / values[at] - 1) <= 0.5 / steps + 1 / 16).all()
