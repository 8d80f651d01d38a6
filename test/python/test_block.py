# SPDX-License-Identifier: Apache-2.0
"""Block and ffn over NumPy arrays: values, layouts, strides, dtypes, errors, lifetimes."""
import copy
import gc
import pickle
import threading

import numpy as np
import pytest
import swiglu

D, F, N = 24, 40, 20  # d_in, d_ff, d_out


def random(seed, *shape, dtype="f32"):
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return swiglu.encode(values, dtype)


def weights(dtype="f32"):
    return {
        "gate": random(1, F, D, dtype=dtype),
        "up": random(2, F, D, dtype=dtype),
        "down": random(3, N, F, dtype=dtype),
        "gate_bias": random(4, F, dtype=dtype),
        "up_bias": random(5, F, dtype=dtype),
        "down_bias": random(6, N, dtype=dtype),
    }


def packed(w, layout):
    """The same block with gate and up in one matrix."""
    def join(gate, up):
        if layout == "gate_up":
            return np.concatenate([gate, up])
        if layout == "up_gate":
            return np.concatenate([up, gate])
        return np.stack([gate, up], axis=1).reshape(2 * F, *gate.shape[1:])

    out = {"down": w["down"], "down_bias": w["down_bias"], "up": None, "layout": layout}
    return {**out, "gate": join(w["gate"], w["up"]), "gate_bias": join(w["gate_bias"], w["up_bias"])}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("activation", list(swiglu.activation_names()))
def test_within_the_bound(dtype, activation):
    w, x = weights(dtype), random(7, 5, D, dtype=dtype)
    asked = "bf16" if dtype == "bf16" else None
    y = swiglu.ffn(x, **w, activation=activation, dtype=asked)
    expected, bound = swiglu.reference(x, **w, activation=activation, dtype=asked)
    assert y.dtype == x.dtype and y.shape == (5, N)
    error = np.abs(swiglu.decode(y, dtype) - expected)
    assert np.all(error <= bound)
    less = swiglu.ffn(x, **{**w, "down": np.where(np.arange(F) == 7, 0, w["down"]).astype(x.dtype)}, activation=activation,
                      dtype=asked)
    assert np.any(np.abs(swiglu.decode(less, dtype) - expected) > bound)  # one hidden value less is seen


@pytest.mark.parametrize("layout", ["gate_up", "up_gate", "interleaved"])
def test_packed_layouts_are_the_same_block(layout):
    w, x = weights(), random(7, 5, D)
    assert np.array_equal(swiglu.ffn(x, **packed(w, layout)), swiglu.ffn(x, **w))


def test_ungated():
    w, x = weights(), random(7, 5, D)
    y = swiglu.ffn(x, None, w["up"], w["down"], up_bias=w["up_bias"], activation="relu")
    h = np.maximum(x.astype(np.float64) @ w["up"].T.astype(np.float64) + w["up_bias"], 0)
    plain = h @ w["down"].T.astype(np.float64)
    magnitude = (np.abs(x) @ np.abs(w["up"]).T + np.abs(w["up_bias"])) @ np.abs(w["down"]).T
    assert np.all(np.abs(y - plain) <= (D + F + 4) * 2.0**-24 * magnitude)


def test_strided_inputs_are_right():
    w, x = weights(), random(7, 6, D)
    block = swiglu.Block(**w)
    y = block(x)
    wide = np.full((6, 3 * D), np.nan, np.float32)
    wide[:, D : 2 * D] = x
    assert np.array_equal(block(wide[:, D : 2 * D]), y)  # a row stride
    assert np.array_equal(block(x[::-1]), y[::-1])  # negative
    assert np.array_equal(block(np.broadcast_to(x[0], (4, D))), np.broadcast_to(y[0], (4, N)))  # zero
    assert np.array_equal(block(np.asfortranarray(x)), y)
    assert np.array_equal(block(x.reshape(2, 3, D)[:, ::2]), y.reshape(2, 3, N)[:, ::2])  # does not fold
    assert np.array_equal(block(x[:, ::-1]), block(np.ascontiguousarray(x[:, ::-1])))
    raw = np.zeros(x.nbytes + 1, np.uint8)
    raw[1:] = x.view(np.uint8).reshape(-1)
    assert np.array_equal(block(raw[1:].view(np.float32).reshape(6, D)), y)  # not aligned
    frozen = x.copy()
    frozen.flags.writeable = False
    assert np.array_equal(block(frozen), y)


def test_strided_weights_are_right():
    w, x = weights(), random(7, 6, D)
    y = swiglu.ffn(x, **w)
    transposed = {**w, "gate": np.ascontiguousarray(w["gate"].T).T, "down": np.asfortranarray(w["down"])}
    assert np.array_equal(swiglu.ffn(x, **transposed), y)
    wide = np.full((2 * F, 2 * D), np.nan, np.float32)
    wide[::2, ::2] = w["up"]
    assert np.array_equal(swiglu.ffn(x, **{**w, "up": wide[::2, ::2]}), y)
    assert np.array_equal(swiglu.ffn(x, **{**w, "up_bias": w["up_bias"][::-1].copy()[::-1]}), y)
    columns = np.full((F, D + 3), np.nan, np.float32)
    columns[:, :D] = w["gate"]
    assert np.array_equal(swiglu.ffn(x, **{**w, "gate": columns[:, :D]}), y)


def test_block_formats():
    raw = np.zeros((F, D // 8 * 9), np.uint8)  # not whole blocks of 34 bytes
    w = weights()
    with pytest.raises(ValueError, match="gate: rows of 27 bytes are not whole q8_0 blocks of 34"):
        swiglu.Block(raw, w["up"], w["down"], dtype="q8_0")
    rng = np.random.default_rng(0)
    q = rng.integers(-127, 128, (F, 64), dtype=np.int8).reshape(F, 2, 32)
    scale = np.full((F, 2, 1), 0.01, np.float16)
    blocks = np.concatenate([scale.view(np.uint8), q.view(np.uint8)], axis=2).reshape(F, 68)
    exact = swiglu.decode(blocks, "q8_0")
    assert np.array_equal(exact, (q * scale.astype(np.float32)).reshape(F, 64).astype(np.float32))
    down, x = random(3, N, F), random(7, 3, 64)
    assert np.array_equal(swiglu.ffn(x, blocks, blocks, down, dtype="q8_0"), swiglu.ffn(x, exact, exact, down))


@pytest.mark.parametrize("shape", [(0, D), (3, 0, D), (D,), (2, 1, 3, D)])
def test_any_leading_shape(shape):
    block = swiglu.Block(**weights())
    x = random(7, *shape)
    y = block(x)
    assert y.shape == (*shape[:-1], N)
    assert np.array_equal(y.reshape(-1, N), block(x.reshape(-1, D)))


def test_empty_widths():
    w = weights()
    y = swiglu.ffn(random(7, 3, D), w["gate"][:0], w["up"][:0], w["down"][:, :0], down_bias=w["down_bias"])
    assert np.array_equal(y, np.broadcast_to(w["down_bias"], (3, N)))


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_bits_do_not_depend_on_threads(threads):
    w, x = weights(), random(7, 33, D)
    assert np.array_equal(swiglu.ffn(x, **w, threads=threads), swiglu.ffn(x, **w, threads=1))


@pytest.mark.parametrize(
    "change, error, text",
    [
        ({"activation": "silly"}, ValueError, "unknown activation 'silly'; known are silu"),
        ({"activation": 3}, TypeError, "activation must be a name or a swiglu.Activation"),
        ({"layout": "sideways"}, ValueError, "layout 'sideways' is not one of separate"),
        ({"layout": "gate_up"}, ValueError, "up is given, but layout 'gate_up' does not use it"),
        ({"up": None}, ValueError, "up is None: for a packed gate name its layout"),
        ({"gate": None}, ValueError, "gate_bias is given, but layout 'ungated' does not use gate"),
        ({"compute": "f64"}, ValueError, "compute 'f64' is not one of auto, f32, bf16"),
        ({"threads": 0}, ValueError, "threads is 0"),
        ({"threads": 1.5}, TypeError, "threads must be an int"),
        ({"isa": "sse"}, ValueError, "isa 'sse' is not one of generic"),
        ({"up": np.zeros((3, D), np.float32)}, ValueError, r"up: is \[3, 24\], the widths ask for \[40, 24\] \(E_SHAPE\)"),
        ({"down": np.zeros((N, F + 1), np.float32), "gate_bias": None, "up_bias": None}, ValueError, "E_SHAPE"),
        ({"up": np.zeros(D, np.float32)}, ValueError, "up: 1 dimensions"),
        ({"up": np.zeros((F, D))}, TypeError, "up: an array of float64"),
        ({"up": np.zeros((F, D), np.uint16)}, TypeError, "up: an array of uint16; it can be"),
        ({"up": np.zeros((F, D), ">f4")}, TypeError, "up: an array of >f4"),
        ({"up": [[1.0]]}, TypeError, "up must be a NumPy array, not list"),
        ({"gate_bias": np.zeros(3, np.float32)}, ValueError, r"gate_bias: shape \(3,\), expected \(40,\)"),
        ({"dtype": "q9"}, ValueError, "unknown dtype 'q9'"),
    ],
)
def test_bad_descriptions(change, error, text):
    arguments = {**weights(), **change}
    if change.get("dtype") == "q9":
        arguments["gate"] = np.zeros((F, D), np.uint8)
    with pytest.raises(error, match=text):
        swiglu.Block(**arguments)


@pytest.mark.parametrize(
    "x, error, text",
    [
        (np.zeros((2, D + 1), np.float32), ValueError, r"x: shape \(2, 25\), expected \[..., 24\]"),
        (np.float32(1), TypeError, "x must be a NumPy array"),
        (np.zeros((), np.float32), ValueError, r"x: shape \(\)"),
        (np.zeros((2, D)), TypeError, "x: an array of float64"),
        (np.zeros((2, D), np.uint16), TypeError, "uint16"),
        (np.zeros((2, D), object), TypeError, "object"),
        (None, TypeError, "not NoneType"),
    ],
)
def test_bad_inputs(x, error, text):
    with pytest.raises(error, match=text):
        swiglu.Block(**weights())(x)


def test_bad_activations_carry_the_text_of_the_library():
    with pytest.raises(ValueError, match="act.gate bound is NaN"):
        swiglu.Activation(gate_lo=float("nan"))
    with pytest.raises(ValueError, match="gate_hi is 0"):
        swiglu.Activation.named("silu(gate_hi=0)")
    with pytest.raises(ValueError, match="no parameter 'beta'"):
        swiglu.Activation.named("silu(beta=1)")
    with pytest.raises(ValueError, match="alpha cannot be 'x'"):
        swiglu.Activation.named("silu(alpha=x)")
    with pytest.raises(ValueError, match="kind 'swash'"):
        swiglu.Activation("swash")


def test_no_parameter_of_an_activation_is_ignored():
    for kind, param in (("silu", (1.0,)), ("relu", (1.0, 2.0)), ("xielu", (1.0,)), ("situ", ())):
        with pytest.raises(ValueError, match=f"activation '{kind}' has [024] values in param, not {len(param)}"):
            swiglu.Activation(kind, param=param)
    with pytest.raises(ValueError, match="activation 'gelu' does not use alpha"):
        swiglu.Activation.named("gelu(alpha=2)")
    with pytest.raises(TypeError, match="activation alpha must be a number, not 'x'"):
        swiglu.Activation(alpha="x")
    assert swiglu.Activation(alpha=np.float32(1.5)) == swiglu.Activation(alpha=1.5)
    for wrong in (None, [1], 3):
        with pytest.raises(TypeError, match="activation must be a name or a swiglu.Activation"):
            swiglu.Block(**weights(), activation=wrong)


def test_a_dtype_that_nothing_has_is_refused():
    w = weights()
    with pytest.raises(ValueError, match="unknown dtype 'bf17'"):
        swiglu.Block(**w, dtype="bf17")
    with pytest.raises(ValueError, match="dtype 'bf16' says what uint16 and uint8 arrays hold, but no weight is"):
        swiglu.Block(**w, dtype="bf16")
    with pytest.raises(ValueError, match="dtype 'bf16' says what .* x is float32, not of such a type"):
        swiglu.Block(**w)(random(7, 2, D), dtype="bf16")
    mixed = {**w, "down": random(3, N, F, dtype="bf16")}
    assert swiglu.ffn(random(7, 2, D), **mixed, dtype="bf16").shape == (2, N)


@pytest.mark.parametrize("name, shape", [("gate", (F, D + 1)), ("up", (F, D + 1)), ("up", (F + 1, D)), ("gate", (F + 1, D)),
                                         ("down", (N, F + 1)), ("down", (F, N))])
def test_shape_errors_name_the_matrix_that_differs(name, shape):
    """Of three matrices two agree on d_ff; where only gate and up share a width, gate is believed."""
    blamed = "up" if name == "gate" and shape == (F, D + 1) else name
    plain = {part: weights()[part] for part in ("gate", "up", "down")}
    with pytest.raises(ValueError, match=f"^block: {blamed}: is "):
        swiglu.Block(**{**plain, name: random(1, *shape)})


@pytest.mark.parametrize("name", list(swiglu.activation_names()))
def test_activations_survive_their_text(name):
    act = swiglu.Activation.named(name)
    assert swiglu.Activation.named(str(act)) == act


def test_changed_parameters_are_used():
    w, x = weights(), random(7, 5, D)
    plain = swiglu.ffn(x, **w)
    clamped = swiglu.ffn(x, **w, activation="silu(gate_hi=0.5, up_lo=-0.5, up_hi=0.5)")
    assert not np.array_equal(plain, clamped)
    assert np.array_equal(clamped, swiglu.ffn(x, **w, activation=swiglu.Activation(gate_hi=0.5, up_lo=-0.5, up_hi=0.5)))


def test_special_values_of_activations():
    inf = np.inf
    assert np.array_equal(swiglu.act("silu", [0.0, inf, -inf]).view(np.uint32), np.float32([0, inf, -0.0]).view(np.uint32))
    assert np.isnan(swiglu.act("gelu", np.nan)) and swiglu.act("gelu", np.nan).shape == ()
    assert np.array_equal(swiglu.act_derivative("silu", [0.0, inf]), np.float32([0.5, 1]))
    assert np.array_equal(swiglu.act_derivative("relu", [-1.0, 0.0, 2.0]), np.float32([0, 0, 1]))


def test_packs_once_and_keeps_nothing():
    w, x = weights(), random(7, 5, D)
    block = swiglu.Block(**w)
    y = block(x)
    for array in w.values():
        array[...] = np.nan
    del array, w
    gc.collect()
    assert np.array_equal(block(x), y)


def test_closed_block():
    with swiglu.Block(**weights()) as block:
        pass
    block.close()
    with pytest.raises(ValueError, match="the block is closed"):
        block(random(7, 1, D))
    assert "closed" in repr(block)


def test_blocks_are_not_copied():
    block = swiglu.Block(**weights())
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            attempt(block)


def test_info():
    block = swiglu.Block(**weights("bf16"), dtype="bf16", isa="generic")
    info = block.info
    assert (info.d_in, info.d_ff, info.d_out, info.gated, info.isa) == (D, F, N, True, "generic")
    assert info.compute == ("bf16", "bf16") and info.file_bytes >= 2 * (2 * F * D + N * F) and info.packed_bytes > 0


def test_closing_while_others_compute():
    """Memory goes with the last call, not with close."""
    x = random(7, 64, D)
    for _ in range(20):
        block = swiglu.Block(**weights(), threads=1)
        expected = block(x)
        wrong = []

        def work(block=block, expected=expected, wrong=wrong):
            try:
                while True:
                    if not np.array_equal(block(x), expected):
                        wrong.append(1)
            except ValueError:
                return

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        block.close()
        for thread in threads:
            thread.join()
        assert not wrong


def test_sizes():
    assert swiglu.width(4096, multiple_of=256) == swiglu.width(4096) == 11008  # as `swiglu plan --d-model 4096`
    assert swiglu.width(4096, multiple_of=1) == 10922
    assert swiglu.width(4096, multiple_of=1024, multiplier=1.3) == 14336
    assert swiglu.width(5120, multiple_of=256, rule="nearest") == 13568
    counts = swiglu.count(576, 1536, dtype="bf16")
    assert counts == swiglu.Counts(3 * 576 * 1536, 6 * 576 * 1536, 2 * 3 * 576 * 1536)
    assert swiglu.count(8, 32, layout="ungated", bias=True).parameters == 2 * 8 * 32 + 32 + 8
    assert swiglu.calculate_ffn_params(768)["hidden_dim"] == 2048
    for wrong in (-1, 2**63, 2**64 + 768):  # the last is 768 to a size_t
        with pytest.raises(ValueError, match=f"d_model is {wrong}, not within"):
            swiglu.width(wrong)
        with pytest.raises(ValueError, match=f"d_ff is {wrong}, not within"):
            swiglu.count(2, wrong)
    with pytest.raises(ValueError, match="E_SHAPE"):
        swiglu.width(2**62)
    for wrong in (7.5, "a", None):
        with pytest.raises(TypeError, match=f"d_model must be an integer, not {wrong!r}"):
            swiglu.width(wrong)
    assert swiglu.width(np.int64(4096), multiple_of=256) == 11008


def test_encode_and_decode():
    values = np.float32([1, -0.0, 1e-40, 3.4e38, np.nan, 0.1]).reshape(2, 3)
    half = swiglu.encode(values)
    assert half.dtype == np.uint16 and half.shape == (2, 3)
    assert half.ravel()[:5].tolist() == [0x3F80, 0x8000, 0x0001, 0x7F80, 0x7FC0]
    assert np.array_equal(swiglu.decode(half, "bf16").ravel()[:4], np.float32([1, 0, 2.0**-133, np.inf]))
    with pytest.raises(ValueError, match="unknown dtype 'iq2_xxs'; known are f32, "):
        swiglu.encode(values, "iq2_xxs")
    blocks = np.random.default_rng(6).standard_normal((3, 64)).astype(np.float32)
    raw = swiglu.encode(blocks, "q8_0")
    assert raw.dtype == np.uint8 and raw.shape == (3, 68)
    half_a_step = np.abs(blocks.reshape(6, 32)).max(axis=1, keepdims=True) / 127 * (0.5 + 127 * 2**-11)  # d is an f16
    assert (np.abs(swiglu.decode(raw, "q8_0") - blocks).reshape(6, 32) <= half_a_step).all()
    with pytest.raises(ValueError, match="whole q4_k blocks of 256 values"):
        swiglu.encode(blocks, "q4_k")
    with pytest.raises(ValueError, match="NaN or infinite"):
        swiglu.encode(np.full((1, 32), np.nan), "mxfp4")
    with pytest.raises(TypeError, match="is not bf16"):
        swiglu.decode(values, "bf16")
    with pytest.raises(ValueError, match="whole q8_0 blocks"):
        swiglu.decode(np.zeros(33, np.uint8), "q8_0")
