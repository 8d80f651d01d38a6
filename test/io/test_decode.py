# SPDX-License-Identifier: Apache-2.0
"""Every decoder of the library equals the Python package gguf, bit for bit (any NaN equals any NaN)."""
import ctypes

import gguf
import numpy as np
import pytest

from capi import abi, library, new

N_BLOCKS = 10_000
T = gguf.GGMLQuantizationType
# Where the f16 scales of a block lie (MXFP4: one E8M0 byte, covered by random bytes).
SCALES = {T.F16: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82],
          T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.MXFP4: [], T.BF16: [], T.F32: []}
SPECIAL_F16 = np.array([0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01,
                        0x7E00, 0xFE00], np.uint16)


def blocks(qtype, rng):
    """Random bytes: a third with ordinary scales, a third with whatever the bytes say, a third with special scales."""
    raw = rng.integers(0, 256, (N_BLOCKS, gguf.GGML_QUANT_SIZES[qtype][1]), np.uint8)
    third = N_BLOCKS // 3
    for at in SCALES[qtype]:
        ordinary = rng.normal(0, 0.05, third).astype(np.float16).view(np.uint8).reshape(-1, 2)
        special = rng.choice(SPECIAL_F16, third).view(np.uint8).reshape(-1, 2)
        raw[:third, at:at + 2] = ordinary
        raw[third:2 * third, at:at + 2] = special
    return raw


def decode(qtype, raw):
    n = raw.shape[0] * gguf.GGML_QUANT_SIZES[qtype][0]
    out = np.empty(n, np.float32)
    assert library.swiglu_decode(int(qtype), raw.ctypes.data, n, out.ctypes.data) == 0
    return out


def assert_same_bits(got, want):
    differ = (got.view(np.uint32) != want.view(np.uint32)) & ~(np.isnan(got) & np.isnan(want))
    at = np.flatnonzero(differ)
    assert at.size == 0, f"{at.size} of {got.size} differ, first at {at[0]}: {got[at[0]]!r} for {want[at[0]]!r}"


@pytest.mark.parametrize("qtype", SCALES, ids=lambda q: q.name)
def test_the_list_describes_blocks_as_gguf_does(qtype):
    info = new(abi.DtypeInfo)
    assert library.swiglu_dtype_query(int(qtype), ctypes.byref(info)) == 0
    assert info.name.decode() == qtype.name.lower()
    assert (info.block_elems, info.block_bytes) == gguf.GGML_QUANT_SIZES[qtype]
    assert (list(info.scales.at[:info.scales.n_f16]) if qtype != T.F16 else [0]) == SCALES[qtype]
    assert info.scales.n_e8m0 == (qtype == T.MXFP4)


@pytest.mark.parametrize("qtype", SCALES, ids=lambda q: q.name)
def test_decoder_equals_gguf(qtype):
    raw = blocks(qtype, np.random.default_rng(int(qtype)))
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(raw, qtype).astype(np.float32).reshape(-1)
    if SCALES[qtype]:
        assert np.isnan(want).any() and np.isinf(want).any()
    assert_same_bits(decode(qtype, raw), want)


def test_mxfp4_every_exponent():
    raw = np.zeros((256, 17), np.uint8)
    raw[:, 0] = np.arange(256)
    raw[:, 1:] = np.arange(16) * 17
    with np.errstate(all="ignore"):
        want = gguf.quants.dequantize(raw, T.MXFP4).reshape(-1)
    assert_same_bits(decode(T.MXFP4, raw), want)


def test_C037_q4_1_header_is_scale_and_minimum():
    quants = bytes(i | i << 4 for i in range(16))
    raw = np.frombuffer(np.array([0.5, -1], np.float16).tobytes() + quants, np.uint8).reshape(1, 20)
    want = np.tile(np.arange(16, dtype=np.float32) * np.float32(0.5) - 1, 2)
    np.testing.assert_array_equal(decode(T.Q4_1, raw.copy()), want)


@pytest.mark.parametrize("qtype", SCALES, ids=lambda q: q.name)
def test_decoder_reads_any_alignment(qtype):
    raw = blocks(qtype, np.random.default_rng(7))[:3].reshape(-1)
    want = decode(qtype, raw.reshape(3, -1))
    for shift in range(1, 8):
        moved = np.zeros(raw.size + 8, np.uint8)
        moved[shift:shift + raw.size] = raw
        out = np.empty(want.size, np.float32)
        assert library.swiglu_decode(int(qtype), moved[shift:].ctypes.data, want.size, out.ctypes.data) == 0
        assert_same_bits(out, want)


def test_decode_refuses_partial_blocks_and_unknown_formats():
    out = np.full(8, 3, np.float32)
    raw = np.zeros(64, np.uint8)
    data = raw.ctypes.data
    assert library.swiglu_decode(int(T.Q4_0), data, 31, out.ctypes.data) == 20
    assert library.swiglu_decode(int(T.IQ2_XXS), data, 256, out.ctypes.data) == 10
    assert (out == 3).all()
