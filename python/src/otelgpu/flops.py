# Copyright The otelgpu Authors
# SPDX-License-Identifier: Apache-2.0
"""FLOPs of common operations, from shapes, by the conventions of gpuspan/flops in Go.

    with otelgpu.section("scores", flops=otelgpu.flops.matmul(a, b), precision="fp32"):
        c = a @ b

A multiply-add is two operations; every other arithmetic operation and elementary function is one. Operands are arrays of
any library, or shapes. Shapes that do not fit raise ValueError."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Sequence, Tuple

__all__ = ["attention", "conv", "einsum", "elementwise", "fft", "linear", "matmul", "reduce", "sparse", "training"]


def _shape(x: Any) -> Tuple[int, ...]:
    shape = getattr(x, "shape", x)
    out = tuple(int(d) for d in shape)
    if any(d < 0 for d in out):
        raise ValueError(f"a shape cannot be negative, found {out}")
    return out


def matmul(a: Any, b: Any) -> float:
    """Returns 2·m·n·k of a @ b, with the rules of numpy.matmul for vectors and for batches, which are broadcast."""
    x, y = _shape(a), _shape(b)
    if not x or not y:
        raise ValueError("matmul needs operands with at least one dimension")
    x = x if len(x) > 1 else (1, *x)
    y = y if len(y) > 1 else (*y, 1)
    if x[-1] != y[-2]:
        raise ValueError(f"cannot multiply {_shape(a)} and {_shape(b)}: the inner dimensions differ")
    return 2.0 * math.prod(_broadcast(x[:-2], y[:-2])) * x[-2] * x[-1] * y[-1]


def _broadcast(*shapes: Sequence[int]) -> Tuple[int, ...]:
    out: List[int] = []
    for i in range(1, max(map(len, shapes), default=0) + 1):
        sizes = {s[-i] for s in shapes if len(s) >= i} - {1}
        if len(sizes) > 1:
            raise ValueError(f"cannot broadcast shapes {', '.join(map(str, shapes))}")
        out.append(sizes.pop() if sizes else 1)
    return tuple(reversed(out))


def linear(x: Any, weight: Any, bias: bool = False) -> float:
    """Returns the FLOPs of a layer x·weightᵀ (+ bias), whose weight is (out, in)."""
    rows, inner = math.prod(_shape(x)[:-1]), _shape(x)[-1]
    out, other = _shape(weight)
    if inner != other:
        raise ValueError(f"cannot apply a weight of shape {_shape(weight)} to {_shape(x)}")
    return 2.0 * rows * inner * out + (rows * out if bias else 0)


def einsum(equation: str, *operands: Any) -> float:
    """Returns the FLOPs of an Einstein sum without intermediate results: the number of combinations of all indices, times
    the operands' multiplications, plus one if an index is summed. As for a matrix product, the missing first addition is
    ignored. An ellipsis represents dimensions that are broadcast."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(operands):
        raise ValueError(f"{equation!r} has {len(inputs)} operands, found {len(operands)}")
    sizes: Dict[str, int] = {}
    batches: List[Tuple[int, ...]] = []
    for indices, operand in zip(inputs, operands):
        shape = _shape(operand)
        before, dots, after = indices.partition("...")
        extra = len(shape) - len(before) - len(after)
        if extra < 0 or extra > 0 and not dots:
            raise ValueError(f"{indices!r} does not fit the shape {shape}")
        batches.append(shape[len(before):len(before) + extra])
        named = zip(before + after, shape[:len(before)] + shape[len(before) + extra:])
        for index, size in named:
            if sizes.setdefault(index, size) not in (size, 1) and size != 1:
                raise ValueError(f"index {index!r} has the sizes {sizes[index]} and {size}")
            sizes[index] = max(sizes[index], size)
    joined = left.replace(",", "").replace("...", "")
    if not arrow:
        right = "".join(sorted(i for i in set(joined) if joined.count(i) == 1))
    elif unknown := set(right.replace("...", "")) - set(sizes):
        raise ValueError(f"the result of {equation!r} has the index {min(unknown)!r}, which no operand has")
    summed = bool(set(sizes) - set(right))
    return float(math.prod(sizes.values()) * math.prod(_broadcast(*batches)) * (len(operands) - 1 + summed))


def elementwise(x: Any, operations: float = 1) -> float:
    """Returns the FLOPs of so many operations for each element, such as 2 for a·x + y."""
    return float(math.prod(_shape(x)) * operations)


def reduce(x: Any, outputs: int = 1) -> float:
    """Returns the additions or comparisons of reducing an array to so many values."""
    return float(max(math.prod(_shape(x)) - outputs, 0))


def sparse(stored: int, columns: int = 1) -> float:
    """Returns the FLOPs of a sparse matrix with so many stored values times a dense one of so many columns."""
    return 2.0 * stored * columns


def conv(x: Any, weight: Any, output: Any, groups: int = 1) -> float:
    """Returns the FLOPs of a convolution: x is (batch, channels, ...), weight (out, channels / groups, ...), output
    (batch, out, ...)."""
    given, kernel = _shape(x), _shape(weight)
    if given[1] != kernel[1] * groups:
        raise ValueError(f"cannot apply a weight of shape {kernel} with {groups} groups to {given}")
    return 2.0 * math.prod(_shape(output)) * math.prod(kernel[1:])


def fft(x: Any, real: bool = False) -> float:
    """Returns 5·N·log2(N) of a transform over the last dimension, half of it for real numbers, as FFTW states rates."""
    *batch, size = _shape(x)
    return float(math.prod(batch) * (2.5 if real else 5.0) * size * math.log2(max(size, 1)))


def attention(query: Any, key: Any, causal: bool = False) -> float:
    """Returns the FLOPs of the two products of attention; query and key are (..., heads, positions, size). A causal mask
    leaves the pairs at or before each query, whose last one is at the last key. The softmax is not counted."""
    *batch, queries, size = _shape(query)
    keys = _shape(key)[-2]
    pairs = queries * keys
    if causal:
        seeing = min(queries, keys)  # queries with a key, from keys - seeing + 1 on
        pairs = seeing * (keys - seeing) + seeing * (seeing + 1) // 2
    return 4.0 * math.prod(batch) * pairs * size


def training(parameters: float, tokens: float) -> float:
    """Returns 6·N·D, the usual estimate of a forward and backward pass of a dense transformer, for step.model_flops."""
    return 6.0 * parameters * tokens
