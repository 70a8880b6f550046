#!/usr/bin/env python3
"""Writes tests/golden/tensor/*.safetensors: inputs, values and gradients of tensor operations, computed with NumPy in
float64, rounded to float32 at the end.

  python3 tests/engine/tensor/make_goldens.py        (NumPy 1.24 or later)

A case `c` has inputs `c.x0`, `c.x1`, ..., values `c.y` (several: `c.y0`, `c.y1`, ...), and for inputs that have one a
gradient `c.d0`, ...: that of sum(y * weights(y.shape)) by central differences, and so independent of any backward
pass. golden_test.cc has a function for each case; what a case means is said here.
"""

import json
import math
import pathlib
import struct

import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parents[2] / "golden" / "tensor"
DTYPES = {"float64": "F32", "float32": "F32", "int32": "I32", "bool": "BOOL", "uint8": "U8", "int64": "I64"}
rng = np.random.default_rng(20241)
cases = {}


def save(path, tensors):
    header, blobs, offset = {}, [], 0
    for name, array in tensors.items():
        kind = DTYPES[str(array.dtype)]
        blob = np.ascontiguousarray(array, dtype="<f4" if kind == "F32" else None).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


def weights(shape):
    """What a result is multiplied with before it is summed to a loss; golden_test.cc has the same."""
    n = math.prod(shape)
    return (((np.arange(n) * 37 + 11) % 101) / 101 - 0.5).astype(np.float32).astype(np.float64).reshape(shape)


def f32(a):
    """Rounded to float32, computed with in float64."""
    return np.asarray(a, np.float64).astype(np.float32).astype(np.float64)


def gradient(f, xs, k):
    def loss(x):
        y = f(*xs[:k], x, *xs[k + 1 :])
        return np.sum(y * weights(y.shape))

    out = np.zeros_like(xs[k])
    for at in np.ndindex(xs[k].shape):
        step = 1e-4 * max(1.0, abs(xs[k][at]))

        def difference(h, at=at):
            up, down = xs[k].copy(), xs[k].copy()
            up[at] += h
            down[at] -= h
            return (loss(up) - loss(down)) / (2 * h)

        # Richardson: the error of h^2 cancels.
        out[at] = (4 * difference(step / 2) - difference(step)) / 3
    return out


def case(name, f, *xs, grad=True):
    assert name not in cases, name
    cases[name] = True
    xs = [f32(x) if np.asarray(x).dtype.kind == "f" else np.asarray(x) for x in xs]
    ys = f(*xs)
    for i, x in enumerate(xs):
        tensors[f"{name}.x{i}"] = x
    for i, y in enumerate(ys if isinstance(ys, tuple) else (ys,)):
        y = np.asarray(y)
        y = y.astype(np.int32) if y.dtype == np.int64 else y
        tensors[f"{name}.y{i}" if isinstance(ys, tuple) else f"{name}.y"] = y
    if grad:
        for i, x in enumerate(xs):
            if x.dtype.kind == "f":
                tensors[f"{name}.d{i}"] = gradient(f, xs, i)


def normal(*shape):
    return rng.normal(size=shape)


def uniform(low, high, *shape):
    return rng.uniform(low, high, size=shape)


# ---- element-wise ----
def softplus(x, beta=1.0):
    return np.logaddexp(0, beta * x) / beta


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


erf = np.vectorize(math.erf)
tensors = {}

PLAIN = uniform(-3, 3, 4, 5)
POSITIVE = uniform(0.2, 4, 4, 5)
INSIDE = uniform(-0.9, 0.9, 4, 5)
for name, f, x in (
    ("neg", lambda x: -x, PLAIN),
    ("reciprocal", lambda x: 1 / x, POSITIVE),
    ("sin", np.sin, 4 * PLAIN),
    ("cos", np.cos, 4 * PLAIN),
    ("tan", np.tan, INSIDE),
    ("asin", np.arcsin, INSIDE),
    ("acos", np.arccos, INSIDE),
    ("atan", np.arctan, PLAIN),
    ("log", np.log, POSITIVE),
    ("log2", np.log2, POSITIVE),
    ("exp", np.exp, PLAIN),
    ("exp2", np.exp2, PLAIN),
    ("sqrt", np.sqrt, POSITIVE),
    ("rsqrt", lambda x: 1 / np.sqrt(x), POSITIVE),
    ("square", np.square, PLAIN),
    ("abs", np.abs, PLAIN),
    ("sign", np.sign, PLAIN),
    ("clamp", lambda x: np.clip(x, -1, 2), PLAIN),
    ("relu", lambda x: np.maximum(x, 0), PLAIN),
    ("sigmoid", sigmoid, PLAIN),
    ("hardsigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1), 2 * PLAIN),
    ("elu", lambda x: np.where(x > 0, x, 1.5 * np.expm1(x)), PLAIN),
    ("celu", lambda x: np.maximum(x, 0) + np.minimum(0, 2 * np.expm1(x / 2)), PLAIN),
    ("selu", lambda x: 1.0507 * np.where(x > 0, x, 1.67326 * np.expm1(x)), PLAIN),
    ("swish", lambda x: x * sigmoid(x), PLAIN),
    ("relu6", lambda x: np.clip(x, 0, 6), 3 * PLAIN),
    ("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6, 2 * PLAIN),
    ("tanh", np.tanh, PLAIN),
    ("sinh", np.sinh, PLAIN),
    ("cosh", np.cosh, PLAIN),
    ("atanh", np.arctanh, INSIDE),
    ("asinh", np.arcsinh, PLAIN),
    ("acosh", np.arccosh, POSITIVE + 1.1),
    ("hardtanh", lambda x: np.clip(x, -1, 1), PLAIN),
    ("erf", erf, PLAIN),
    ("gelu", lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), PLAIN),
    ("quick_gelu", lambda x: x * sigmoid(1.702 * x), PLAIN),
    ("leaky_relu", lambda x: np.where(x > 0, x, 0.01 * x), PLAIN),
    ("mish", lambda x: x * np.tanh(softplus(x)), PLAIN),
    ("softplus", lambda x: softplus(x, 2.0), PLAIN),
    ("softsign", lambda x: x / (1 + np.abs(x)), PLAIN),
):
    case(name, f, x)
HALVES = np.array([-2.5, -1.5, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, 3.5, -2.3, -2.7, 2.3, 2.7, 1e6 + 0.5, -7.0])
for name, f in (("trunc", np.trunc), ("ceil", np.ceil), ("floor", np.floor), ("round", np.round)):
    case(name, f, HALVES, grad=False)
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
case("isinf", np.isinf, SPECIAL, grad=False)
case("isnan", np.isnan, SPECIAL, grad=False)
case("logical_not", np.logical_not, SPECIAL, grad=False)

# ---- element-wise, several operands ----
ROW, COLUMN = normal(1, 5), normal(4, 1)
case("add", np.add, ROW, COLUMN)
case("sub", np.subtract, normal(4, 5), normal(5))
case("mul", np.multiply, ROW, normal(3, 4, 1))
case("div", np.divide, normal(4, 5), uniform(0.5, 2, 5))
case("maximum", np.maximum, normal(4, 5), normal(5))
case("minimum", np.minimum, normal(4, 5), normal(5))
case("pow", np.power, uniform(0.3, 2, 4, 5), normal(5))
case("pow_int", lambda x: x**3, normal(4, 5))
case("pow_negative", lambda x: x**-2.0, uniform(0.5, 2, 4, 5))
case("pow_reverse", lambda x: 2.5**x, normal(4, 5))
case("lerp", lambda a, b, w: a + (b - a) * w, normal(4, 5), normal(4, 5), uniform(0, 1, 5))
case("where", np.where, rng.integers(0, 2, (4, 5)).astype(bool), normal(5), normal(4, 1))
case("masked_fill", lambda x, m: np.where(m, -1.5, x), normal(4, 5), rng.integers(0, 2, (4, 5)).astype(bool))
INTS = np.array([7, -7, 7, -7, 0, 100, -1, 2**30], np.int32)
DIVISORS = np.array([2, 2, -2, -2, 3, -7, 5, 3], np.int32)
case("idiv", lambda a, b: np.trunc(a / b).astype(np.int32), INTS, DIVISORS, grad=False)
case("mod", np.mod, INTS, DIVISORS, grad=False)
case("mod_float", np.mod, np.array([5.5, -5.5, 5.5, -5.5, 3.0]), np.array([2.0, 2.0, -2.0, -2.0, 1.25]), grad=False)
for name, f in (("xor", np.bitwise_xor), ("bitwise_and", np.bitwise_and), ("bitwise_or", np.bitwise_or)):
    case(name, f, INTS, DIVISORS, grad=False)
case("bitwise_not", np.bitwise_not, INTS, grad=False)
case("lshift", lambda x: x * 8, np.abs(DIVISORS), grad=False)
case("rshift", lambda x: x // 8, np.abs(INTS), grad=False)
TIES = np.array([1.0, 2.0, 2.0, np.nan, -1.0])
for name, f in (("lt", np.less), ("gt", np.greater), ("le", np.less_equal), ("ge", np.greater_equal), ("eq", np.equal),
                ("ne", np.not_equal)):
    # A comparison that SEMANTICS makes of the opposite one differs with NaN from IEEE's: left out there.
    case(name, f, TIES[TIES == TIES], np.float64(2.0) * np.ones(4), grad=False)

# ---- movement ----
CUBE = normal(3, 4, 5)
case("reshape", lambda x: x.reshape(4, 15), CUBE)
case("permute", lambda x: x.transpose(2, 0, 1), CUBE)
case("expand", lambda x: np.broadcast_to(x, (3, 4, 5)), normal(4, 1))
case("flip", lambda x: np.flip(x, (0, 2)), CUBE)
case("shrink", lambda x: x[1:3, 0:2, 2:5], CUBE)
case("pad_constant", lambda x: np.pad(x, ((1, 2), (0, 1), (2, 0)), constant_values=1.5), CUBE)
case("pad_negative", lambda x: np.pad(x[1:, :, :-2], ((0, 1), (2, 0), (3, 0))), CUBE)
case("pad_reflect", lambda x: np.pad(x, ((0, 0), (2, 3), (4, 1)), "reflect"), CUBE)
case("pad_replicate", lambda x: np.pad(x, ((0, 0), (2, 3), (4, 1)), "edge"), CUBE)
case("pad_circular", lambda x: np.pad(x, ((0, 0), (2, 3), (4, 1)), "wrap"), CUBE)
case("cat", lambda a, b: np.concatenate((a, b), 1), normal(3, 2), normal(3, 4))
case("stack", lambda a, b: np.stack((a, b), 1), normal(3, 4), normal(3, 4))
case("repeat", lambda x: np.tile(x, (2, 1, 3)), normal(3, 4))
case("repeat_interleave", lambda x: np.repeat(x, 3, 1), normal(3, 4))
case("roll", lambda x: np.roll(x, (1, -2), (0, 1)), normal(3, 4))
case("unfold", lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 1)[:, ::2], normal(3, 8))
case("tril", lambda x: np.tril(x, 1), normal(4, 5))
case("triu", lambda x: np.triu(x, -1), normal(4, 5))
case("diagonal", np.diagonal, normal(4, 4))
case("slice_step", lambda x: x[::2, 3:0:-1], normal(5, 4))
case("slice_negative", lambda x: x[..., -3:, None], CUBE)
case("fancy", lambda x, i, j: x[i, :, j], CUBE, np.array([[0, 2], [1, -1]], np.int32), np.array([1, 4], np.int32))
case("gather", lambda x, i: np.take_along_axis(x, i, 1), normal(3, 5), rng.integers(0, 5, (3, 4)).astype(np.int32))
case("one_hot", lambda i: np.eye(6, dtype=np.int32)[i], np.array([0, 5, 2, 2], np.int32), grad=False)


def scatter(x, i, src):
    y = x.copy()
    np.put_along_axis(y, i, src, 1)
    return y


def scatter_add(x, i, src):
    y = x.copy()
    np.add.at(y, (np.arange(len(x))[:, None], i), src)
    return y


case("scatter", scatter, normal(3, 5), np.array([[0, 4], [2, 1], [3, 0]], np.int32), normal(3, 2), grad=False)
case("scatter_add", scatter_add, normal(3, 5), np.array([[0, 0], [2, 1], [3, 3]], np.int32), normal(3, 2), grad=False)


# ---- reductions ----
def logsumexp(x, axis):
    top = x.max(axis, keepdims=True)
    return np.squeeze(np.log(np.exp(x - top).sum(axis, keepdims=True)) + top, axis)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


case("sum", lambda x: x.sum((0, 2)), CUBE)
case("sum_all_keepdim", lambda x: x.sum(keepdims=True), CUBE)
case("prod", lambda x: x.prod(1), uniform(0.5, 1.5, 3, 4, 5))
case("max", lambda x: x.max(1), CUBE)
case("min", lambda x: x.min((0, 1)), CUBE)
case("mean", lambda x: x.mean((0, 2)), CUBE)
case("var", lambda x: x.var((0, 2), ddof=1), CUBE)
case("var_biased", lambda x: x.var(1), CUBE)
case("std", lambda x: x.std(1, ddof=1), CUBE)
case("softmax", lambda x: softmax(x, 1), 3 * CUBE)
case("log_softmax", lambda x: x - np.expand_dims(logsumexp(x, 2), 2), 3 * CUBE)
case("logsumexp", lambda x: logsumexp(x, 1), 3 * CUBE)
case("logcumsumexp", lambda x: np.logaddexp.accumulate(x, 1), 3 * normal(3, 6))
case("cumsum", lambda x: np.cumsum(x, 1), CUBE)
case("cumsum_long", lambda x: np.cumsum(x), uniform(0, 1, 700), grad=False)
case("cummax", lambda x: np.maximum.accumulate(x, 1), normal(3, 6))
REPEATED = rng.integers(0, 4, (4, 6)).astype(np.float64)
case("argmax", lambda x: np.argmax(x, 1), REPEATED, grad=False)
case("argmin", lambda x: np.argmin(x, 0), REPEATED, grad=False)
case("argmax_all", lambda x: np.argmax(x), REPEATED, grad=False)
case("any", lambda x: x.any(1), REPEATED[:, :2] > 2, grad=False)
case("all", lambda x: x.all(0), REPEATED[:, :3] > 0, grad=False)

# ---- products ----
case("dot_vectors", np.dot, normal(6), normal(6))
case("dot_matrix_vector", np.matmul, normal(3, 6), normal(6))
case("dot_vector_matrix", np.matmul, normal(6), normal(6, 3))
case("matmul", np.matmul, normal(3, 6), normal(6, 4))
case("matmul_batches", np.matmul, normal(2, 1, 3, 4), normal(3, 4, 2))
case("linear", lambda x, w, b: x @ w + b, normal(3, 4), normal(4, 5), normal(5))
case("linear_vector", lambda x, w, b: x * w + b, normal(3, 4), normal(4), normal(4))
for name, formula, xs in (
    ("einsum_matmul", "ij,jk->ik", (normal(3, 4), normal(4, 2))),
    ("einsum_transpose", "ij->ji", (normal(3, 4),)),
    ("einsum_sum", "ijk->j", (CUBE,)),
    ("einsum_all", "ij,ij->", (normal(3, 4), normal(3, 4))),
    ("einsum_outer", "i,j", (normal(3), normal(4))),
    ("einsum_implicit", "ba,cb", (normal(3, 4), normal(2, 3))),
    ("einsum_three", "bn,anm,bm->ba", (normal(2, 3), normal(4, 3, 5), normal(2, 5))),
    ("einsum_ellipsis", "...ij,...jk->...ik", (normal(2, 3, 4), normal(2, 4, 2))),
    ("einsum_ellipsis_front", "i...,i->...", (normal(3, 2, 4), normal(3))),
    ("einsum_ellipsis_implicit", "...a,...a", (normal(2, 3, 4), normal(3, 4))),
):
    case(name, lambda *xs, formula=formula: np.einsum(formula, *xs), *xs)


def attention(q, k, v, mask=None):
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    return softmax(scores if mask is None else scores + mask) @ v


def causal(rows, columns):
    return np.where(np.tril(np.ones((rows, columns), bool)), 0.0, -np.inf)


Q, K, V = normal(2, 4, 3), normal(2, 5, 3), normal(2, 5, 3)
case("attention", attention, Q, K, V)
ATTENDED = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 1, 1], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]], bool)
case("attention_bool_mask", lambda q, k, v, m: attention(q, k, v, np.where(m, 0.0, -np.inf)), Q, K, V, ATTENDED)
case("attention_float_mask", attention, Q, K, V, normal(4, 5))
case("attention_causal", lambda q, k, v: attention(q, k, v, causal(4, 5)), Q, K, V)
case("attention_grouped", lambda q, k, v: attention(q, np.repeat(k, 2, 1), np.repeat(v, 2, 1)), normal(1, 4, 3, 2),
     normal(1, 2, 3, 2), normal(1, 2, 3, 2))


# ---- convolution and pooling ----
def windows(x, kernel, stride, dilation):
    """(..., outputs..., kernel...) over the last len(kernel) axes."""
    n = len(kernel)
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    view = np.lib.stride_tricks.sliding_window_view(x, span, tuple(range(x.ndim - n, x.ndim)))
    lead = (slice(None),) * (x.ndim - n)
    return view[lead + tuple(slice(None, None, s) for s in stride) + tuple(slice(None, None, d) for d in dilation)]


def conv(x, w, b=None, groups=1, stride=None, dilation=None, padding=None):
    n = w.ndim - 2
    stride, dilation, padding = stride or (1,) * n, dilation or (1,) * n, padding or ((0, 0),) * n
    v = windows(np.pad(x, ((0, 0), (0, 0)) + tuple(padding)), w.shape[2:], stride, dilation)
    parts = []
    for part, weight in zip(np.split(v, groups, 1), np.split(w, groups, 0)):
        axes = [1] + list(range(2 + n, 2 + 2 * n)), list(range(1, 2 + n))
        parts.append(np.moveaxis(np.tensordot(part, weight, axes), -1, 1))
    y = np.concatenate(parts, 1)
    return y if b is None else y + b.reshape(1, -1, *[1] * n)


def conv_transpose(x, w, b=None, groups=1, stride=None, dilation=None, padding=None, output_padding=None):
    """By definition: every input element adds its multiple of the kernel to the output."""
    n = w.ndim - 2
    stride, dilation, padding = stride or (1,) * n, dilation or (1,) * n, padding or (0,) * n
    output_padding = output_padding or (0,) * n
    cin, rcout = w.shape[0] // groups, w.shape[1]
    full = [(i - 1) * s + (k - 1) * d + 1 + o
            for i, s, k, d, o in zip(x.shape[2:], stride, w.shape[2:], dilation, output_padding)]
    y = np.zeros((x.shape[0], groups * rcout, *full))
    for at in np.ndindex(*x.shape[2:]):
        for tap in np.ndindex(*w.shape[2:]):
            to = tuple(a * s + t * d for a, s, t, d in zip(at, stride, tap, dilation))
            for g in range(groups):
                part = x[(slice(None), slice(g * cin, (g + 1) * cin)) + at] @ w[(slice(g * cin, (g + 1) * cin), slice(None)) + tap]
                y[(slice(None), slice(g * rcout, (g + 1) * rcout)) + to] += part
    y = y[(slice(None), slice(None)) + tuple(slice(p, f - p) for p, f in zip(padding, full))]
    return y if b is None else y + b.reshape(1, -1, *[1] * n)


IMAGE = normal(2, 4, 6, 5)
case("conv2d", conv, IMAGE, normal(3, 4, 3, 3))
case("conv2d_bias_pad", lambda x, w, b: conv(x, w, b, padding=((1, 1), (1, 1))), IMAGE, normal(3, 4, 3, 3), normal(3))
case("conv2d_stride", lambda x, w: conv(x, w, stride=(2, 3), padding=((2, 2), (1, 1))), IMAGE, normal(3, 4, 3, 2))
case("conv2d_dilation", lambda x, w: conv(x, w, dilation=(2, 1), stride=(1, 2)), IMAGE, normal(3, 4, 3, 2))
case("conv2d_groups", lambda x, w, b: conv(x, w, b, groups=2, padding=((1, 1), (1, 1))), IMAGE, normal(6, 2, 3, 3), normal(6))
case("conv2d_depthwise", lambda x, w: conv(x, w, groups=4), IMAGE, normal(4, 1, 2, 2))
case("conv2d_asymmetric", lambda x, w: conv(x, w, padding=((3, 0), (1, 2))), IMAGE, normal(3, 4, 3, 3))
case("conv1d", lambda x, w, b: conv(x, w, b, stride=(2,), padding=((1, 1),)), normal(2, 3, 9), normal(4, 3, 3), normal(4))
case("conv3d", lambda x, w: conv(x, w, padding=((1, 1),) * 3, stride=(1, 2, 1)), normal(1, 2, 3, 4, 3), normal(2, 2, 2, 3, 2))
case("winograd", lambda x, w, b: conv(x, w, b, padding=((1, 1), (1, 1))), normal(1, 3, 7, 6), normal(2, 3, 3, 3), normal(2))
case("winograd_groups", lambda x, w: conv(x, w, groups=2, padding=((0, 2), (1, 0))), normal(1, 4, 9, 5), normal(4, 2, 3, 3))
case("winograd_1d", lambda x, w: conv(x, w), normal(2, 2, 11), normal(3, 2, 3))
case("conv_transpose2d", conv_transpose, normal(2, 3, 4, 3), normal(3, 2, 3, 2))
case("conv_transpose2d_stride", lambda x, w, b: conv_transpose(x, w, b, stride=(2, 3), padding=(1, 0), output_padding=(1, 2)),
     normal(1, 3, 4, 3), normal(3, 2, 3, 3), normal(2))
case("conv_transpose2d_groups", lambda x, w: conv_transpose(x, w, groups=2, dilation=(2, 1), stride=(2, 1)),
     normal(1, 4, 3, 3), normal(4, 2, 2, 3))
case("conv_transpose1d", lambda x, w: conv_transpose(x, w, stride=(2,)), normal(2, 2, 5), normal(2, 3, 3))


def ceil_sizes(size, left, right, kernel, stride):
    outputs = -(-(size + left + right - kernel) // stride) + 1
    return outputs - 1 if (outputs - 1) * stride >= size + left else outputs


def pool(x, kernel, stride=None, padding=(0, 0), ceil=False, kind="max", count_pad=True, dilation=(1, 1)):
    """Window by window, as the definition has it."""
    stride = stride or kernel
    h, w = x.shape[-2:]
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    if ceil:
        oh, ow = (ceil_sizes(n, p, p, k, s) for n, p, k, s in zip((h, w), padding, span, stride))
    else:
        oh, ow = ((n + 2 * p - k) // s + 1 for n, p, k, s in zip((h, w), padding, span, stride))
    y = np.zeros(x.shape[:-2] + (oh, ow))
    for i, j in np.ndindex(oh, ow):
        rows = [i * stride[0] - padding[0] + t * dilation[0] for t in range(kernel[0])]
        columns = [j * stride[1] - padding[1] + t * dilation[1] for t in range(kernel[1])]
        inside = [(r, c) for r in rows for c in columns if 0 <= r < h and 0 <= c < w]
        values = np.stack([x[..., r, c] for r, c in inside])
        if kind == "max":
            y[..., i, j] = values.max(0)
        else:
            counted = sum(-padding[0] <= r < h + padding[0] and -padding[1] <= c < w + padding[1] for r in rows for c in columns)
            y[..., i, j] = values.sum(0) / (counted if count_pad else len(inside))
    return y


PLANE = normal(1, 2, 7, 6)
for name, options in (
    ("max_pool", {"kernel": (2, 2)}),
    ("max_pool_overlap", {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1)}),
    ("max_pool_dilated", {"kernel": (2, 2), "stride": (1, 1), "dilation": (2, 3)}),
    ("max_pool_ceil", {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil": True}),
    ("avg_pool", {"kernel": (2, 2), "kind": "avg"}),
    ("avg_pool_pad", {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1), "kind": "avg"}),
    ("avg_pool_exclude_pad", {"kernel": (3, 2), "stride": (2, 1), "padding": (1, 1), "kind": "avg", "count_pad": False}),
    ("avg_pool_ceil", {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil": True, "kind": "avg"}),
    ("avg_pool_ceil_exclude", {"kernel": (2, 3), "stride": (2, 2), "ceil": True, "kind": "avg", "count_pad": False}),
):
    case(name, lambda x, options=options: pool(x, **options), PLANE)


def resample(x, size, mode, align=False):
    for back in range(1, len(size) + 1):
        axis, out = x.ndim - back, size[-back]
        n, at = x.shape[axis], np.arange(out)
        if mode == "linear":
            place = at * (n - 1) / max(out - 1, 1) if align else (at + 0.5) * n / out - 0.5
            place = np.clip(place, 0, n - 1)
            low = np.floor(place).astype(int)
            high = np.ceil(place).astype(int)
            share = (place - low).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
            x = np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share
        else:
            place = (at + 0.5) * n / out if mode == "nearest-exact" else at * n / out
            x = np.take(x, np.floor(place).astype(int), axis)
    return x


case("interpolate_linear", lambda x: resample(x, (8,), "linear"), normal(1, 2, 5))
case("interpolate_bilinear", lambda x: resample(x, (3, 9), "linear"), normal(1, 2, 5, 4))
case("interpolate_align_corners", lambda x: resample(x, (7, 3), "linear", True), normal(1, 2, 5, 4))
case("interpolate_nearest", lambda x: resample(x, (7, 3), "nearest"), normal(1, 2, 5, 4))
case("interpolate_nearest_exact", lambda x: resample(x, (7, 3), "nearest-exact"), normal(1, 2, 5, 4))


# ---- normalisation ----
def layernorm(x, axes, eps=1e-5):
    y = x - x.mean(axes, keepdims=True)
    return y / np.sqrt((y * y).mean(axes, keepdims=True) + eps)


def on_channels(v, ndim):
    return v.reshape(1, -1, *[1] * (ndim - 2))


def batchnorm(x, w, b, mean, invstd):
    n = x.ndim
    return (x - on_channels(mean, n)) * on_channels(w, n) * on_channels(invstd, n) + on_channels(b, n)


def groupnorm(x, groups, w, b):
    y = layernorm(x.reshape(x.shape[0], groups, -1), (2,)).reshape(x.shape)
    return y * on_channels(w, x.ndim) + on_channels(b, x.ndim)


BATCH = 2 * normal(2, 4, 3, 2) + 0.5
case("layernorm", lambda x: layernorm(x, (2,)), 2 * CUBE + 0.5)
case("layernorm_two_axes", lambda x: layernorm(x, (1, 2), 1e-3), 2 * CUBE + 0.5)
case("batchnorm", batchnorm, BATCH, normal(4), normal(4), normal(4), uniform(0.5, 2, 4))
case("nn_batchnorm_train", lambda x, w, b: batchnorm(x, w, b, x.mean((0, 2, 3)), 1 / np.sqrt(x.var((0, 2, 3)) + 1e-5)),
     BATCH, normal(4), normal(4), grad=False)
tensors["nn_batchnorm_train.running_mean"] = 0.1 * f32(BATCH).mean((0, 2, 3))
tensors["nn_batchnorm_train.running_var"] = 0.9 + 0.1 * f32(BATCH).var((0, 2, 3), ddof=1)
case("nn_batchnorm_eval", lambda x, w, b, m, v: batchnorm(x, w, b, m, 1 / np.sqrt(v + 1e-5)), BATCH, normal(4), normal(4),
     normal(4), uniform(0.5, 2, 4))
case("nn_groupnorm", lambda x, w, b: groupnorm(x, 2, w, b), BATCH, normal(4), normal(4))
case("nn_instancenorm", lambda x, w, b: groupnorm(x, 4, w, b), BATCH, normal(4), normal(4))
case("nn_layernorm", lambda x, w, b: layernorm(x, (1, 2)) * w + b, CUBE, normal(4, 5), normal(4, 5))
case("nn_layernorm2d", lambda x, w, b: layernorm(x, (1,)) * on_channels(w, 4) + on_channels(b, 4), BATCH, normal(4), normal(4))
case("nn_rmsnorm", lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w, CUBE, normal(5))
case("nn_embedding", lambda w, i: w[i], normal(6, 3), np.array([[0, 5, 2], [2, 2, 1]], np.int32))


def lstm(x, h, c, wi, wh, bi, bh):
    i, f, g, o = np.split(x @ wi.T + bi + h @ wh.T + bh, 4, 1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c)


case("nn_lstm", lstm, normal(2, 3), normal(2, 4), normal(2, 4), normal(16, 3), normal(16, 4), normal(16), normal(16))
case("nn_linear", lambda x, w, b: x @ w.T + b, normal(3, 4), normal(5, 4), normal(5))
case("nn_conv2d_same", lambda x, w, b: conv(x, w, b, dilation=(2, 1), padding=((2, 2), (0, 1))), normal(1, 2, 6, 5),
     normal(3, 2, 3, 2), normal(3))
case("nn_conv_transpose1d", lambda x, w, b: conv_transpose(x, w, b, stride=(2,), padding=(1,)), normal(2, 2, 5), normal(2, 3, 3),
     normal(3))

# ---- losses ----
LABELS = np.array([0, 4, 2, 2], np.int32)
LOGITS = 2 * normal(4, 5)


def log_softmax(x, axis=-1):
    return x - x.max(axis, keepdims=True) - np.log(np.exp(x - x.max(axis, keepdims=True)).sum(axis, keepdims=True))


def sparse(x, labels, ignore=None, smoothing=0.0):
    logp = log_softmax(x)
    counts = np.ones(len(labels)) if ignore is None else (labels != ignore).astype(float)
    losses = -((1 - smoothing) * logp[np.arange(len(labels)), labels] + smoothing * logp.mean(-1)) * counts
    return losses, counts


def nll(x, labels, w, ignore=None):
    w = w[labels] * (1 if ignore is None else labels != ignore)
    return -x[np.arange(len(labels)), labels] * w, w


case("bce", lambda x, y: np.mean(-y * np.log(x) - (1 - y) * np.log(1 - x)), uniform(0.1, 0.9, 4, 5), uniform(0, 1, 4, 5))
case("bce_logits", lambda x, y: np.sum(np.maximum(x, 0) - y * x + np.log1p(np.exp(-np.abs(x)))), LOGITS, uniform(0, 1, 4, 5))
case("sparse", lambda x, y: np.mean(sparse(x, y)[0]), LOGITS, LABELS)
case("sparse_ignore", lambda x, y: sparse(x, y, 2)[0].sum() / sparse(x, y, 2)[1].sum(), LOGITS, LABELS)
case("sparse_smooth_none", lambda x, y: sparse(x, y, None, 0.3)[0], LOGITS, LABELS)
case("cross_entropy", lambda x, y: np.mean(sparse(x, y)[0]), LOGITS, LABELS)
case("cross_entropy_smooth", lambda x, y: np.sum(sparse(x, y, None, 0.2)[0]), LOGITS, LABELS)
case("cross_entropy_shares", lambda x, y: np.mean(-(log_softmax(x, 1) * y).sum(1)), normal(2, 3, 4), softmax(normal(2, 3, 4), 1))
case("nll", lambda x, y, w: nll(x, y, w)[0].sum() / nll(x, y, w)[1].sum(), log_softmax(LOGITS), LABELS, uniform(0.5, 2, 5))
case("nll_ignore_none", lambda x, y, w: nll(x, y, w, 4)[0], log_softmax(LOGITS), LABELS, uniform(0.5, 2, 5))
save(GOLDEN / "operations.safetensors", tensors)


# ---- optimisers: `x` is a parameter, `g<step>` its gradients, `y` its value after the last step ----
def lars(x, grads, lr, momentum=0.9, wd=1e-4, nesterov=False, classic=True, tcoef=0.001):
    velocity = np.zeros_like(x)
    for g in grads:
        ratio = 1.0
        if tcoef:
            r1, r2 = np.linalg.norm(x), np.linalg.norm(g)
            ratio = tcoef * r1 / (r2 + wd * r1) if r1 > 0 and r2 > 0 else 1.0
        g = g + wd * x
        if classic:
            g = g * ratio * lr
        if momentum:
            velocity = momentum * velocity + g
            g = g + momentum * velocity if nesterov else velocity
        if not classic:
            g = g * ratio * lr
        x = x - g
    return x


def sgd(x, grads, lr, momentum=0.0, wd=0.0, nesterov=False, classic=False):
    return lars(x, grads, lr, momentum, wd, nesterov, classic, 0)


def lamb(x, grads, lr, b1=0.9, b2=0.999, eps=1e-6, wd=0.0, adam=False):
    m = v = np.zeros_like(x)
    for t, g in enumerate(grads, 1):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        up = m / (1 - b1**t) / (np.sqrt(v / (1 - b2**t)) + eps) + wd * x
        r1, r2 = np.linalg.norm(x), np.linalg.norm(up)
        x = x - lr * (1.0 if adam or not (r1 > 0 and r2 > 0) else r1 / r2) * up
    return x


START, GRADS = f32(normal(3, 4)), [f32(normal(3, 4)) for _ in range(4)]
tensors = {"x": START} | {f"g{i}": g for i, g in enumerate(GRADS)}
tensors |= {
    "sgd": sgd(START, GRADS, 0.1),
    "sgd_momentum": sgd(START, GRADS, 0.1, 0.9, 0.01),
    "sgd_nesterov": sgd(START, GRADS, 0.1, 0.9, 0.01, True),
    "sgd_classic": sgd(START, GRADS, 0.1, 0.9, 0.0, False, True),
    "lars": lars(START, GRADS, 0.5, tcoef=0.1),
    "adam": lamb(START, GRADS, 0.1, eps=1e-8, adam=True),
    "adamw": lamb(START, GRADS, 0.1, eps=1e-8, wd=0.05, adam=True),
    "lamb": lamb(START, GRADS, 0.1, wd=0.05),
}
save(GOLDEN / "optimizers.safetensors", tensors)


# ---- a GPT-2 block: its weights are a formula, so that only the answer is stored ----
def formula(salt, *shape, scale):
    n = math.prod(shape)
    bits = (np.arange(n, dtype=np.uint64) * 2654435761 + salt * 40503) % 2**32
    return f32((bits / 2**32 - 0.5) * scale).reshape(shape)


TOKENS, WIDTH, HEADS = 5, 768, 12
gelu = lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
x = formula(1, TOKENS, WIDTH, scale=4)
y = layernorm(x, (1,)) * (1 + formula(2, WIDTH, scale=0.2)) + formula(3, WIDTH, scale=0.2)
qkv = y @ formula(4, 3 * WIDTH, WIDTH, scale=0.1).T + formula(5, 3 * WIDTH, scale=0.2)
q, k, v = (p.reshape(TOKENS, HEADS, WIDTH // HEADS).transpose(1, 0, 2) for p in np.split(qkv, 3, 1))
y = attention(q, k, v, causal(TOKENS, TOKENS)).transpose(1, 0, 2).reshape(TOKENS, WIDTH)
x = x + y @ formula(6, WIDTH, WIDTH, scale=0.1).T + formula(7, WIDTH, scale=0.2)
y = layernorm(x, (1,)) * (1 + formula(8, WIDTH, scale=0.2)) + formula(9, WIDTH, scale=0.2)
y = gelu(y @ formula(10, 4 * WIDTH, WIDTH, scale=0.1).T + formula(11, 4 * WIDTH, scale=0.2))
x = x + y @ formula(12, WIDTH, 4 * WIDTH, scale=0.1).T + formula(13, WIDTH, scale=0.2)
save(GOLDEN / "gpt2_block.safetensors", {"y": x})
