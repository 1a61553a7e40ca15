"""Sums of two float64 and rows of a tile, as Triton functions.

The arithmetic is that of the C++ kernels (see pairs.py for the sources). Kernels that use it are
compiled with ``enable_fp_fusion=False``: a multiplication and an addition contracted into one
operation would no longer be the ones whose rounding errors are known.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton import knobs

FUSED = tl.constexpr(not knobs.runtime.interpret)
"""Whether fma rounds once. Triton's interpreter multiplies, rounds and adds."""


@triton.constexpr_function
def bits(count: int) -> int:
    """log2 of a power of two."""
    return count.bit_length() - 1


@triton.jit
def two_sum(a, b):
    """a + b and what the sum missed."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


@triton.jit
def halves(a):
    """a as a sum of two numbers of 26 bits each."""
    scaled = 134217729.0 * a
    high = scaled - (scaled - a)
    return high, a - high


@triton.jit
def product_error(a, b, product):
    """What the rounded product of a and b missed."""
    if FUSED:
        error = tl.fma(a, b, -product)
    else:
        a_high, a_low = halves(a)
        b_high, b_low = halves(b)
        error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return error


@triton.jit
def two_product(a, b):
    """a · b and what the product missed."""
    product = a * b
    return product, product_error(a, b, product)


@triton.jit
def add(a_hi, a_lo, b_hi, b_lo):
    """The sum of two pairs; a is what is carried along, its low part the larger one."""
    total, missed = two_sum(a_hi, b_hi)
    return total, a_lo + (missed + b_lo)


@triton.jit
def times(a, hi, lo):
    """A number by a pair."""
    product = a * hi
    return product, tl.fma(a, lo, product_error(a, hi, product))


@triton.jit
def times_pair(a_hi, a_lo, b_hi, b_lo):
    """A pair by a pair."""
    product = a_hi * b_hi
    error = product_error(a_hi, b_hi, product)
    return product, tl.fma(a_lo, b_hi, tl.fma(a_hi, b_lo, error))


@triton.jit
def settled(hi, lo):
    """The same pair with its low part at most half a unit of the high one."""
    total = hi + lo
    return total, lo - (total - hi)


@triton.jit
def reciprocal(a):
    """1 / a as a pair."""
    quotient = 1.0 / a
    back = quotient * a
    rest = (1.0 - back) - product_error(quotient, a, back)
    return quotient, rest / a


@triton.jit
def rounded(hi, lo):
    """hi + lo; the low part of what is not finite is no number and left out."""
    total = hi + lo
    return tl.where(total == total, total, hi)


@triton.jit
def narrowed(x, TYPE: tl.constexpr):
    """float64 in the type of an output; half precision by way of float32."""
    if TYPE == tl.float64:
        y = x
    else:
        y = x.to(tl.float32).to(TYPE)
    return y


@triton.jit
def widened(x):
    """Any float as float64."""
    if x.dtype == tl.float64:
        y = x
    else:
        y = x.to(tl.float32).to(tl.float64)
    return y


@triton.jit
def rows_of(x, K: tl.constexpr):
    """The K rows of a tile [N, K, D], each [N, D].

    Taken apart bit by bit of the row's number, lowest first. Compiled, that is one exchange
    between the threads that loaded the tile and those that own its columns.
    """
    N: tl.constexpr = x.shape[0]
    D: tl.constexpr = x.shape[2]
    parts = (tl.permute(x, [0, 2, 1]),)
    for bit in tl.static_range(bits(K)):
        even = ()
        odd = ()
        for part in tl.static_range(2**bit):
            low, high = tl.split(tl.reshape(parts[part], [N, D, K >> (bit + 1), 2]))
            even = even + (low,)
            odd = odd + (high,)
        parts = even + odd
    rows = ()
    for i in tl.static_range(K):
        rows = rows + (tl.reshape(parts[i], [N, D]),)
    return rows


@triton.jit
def tile_of(rows, K: tl.constexpr):
    """K rows [N, D] as a tile [N, K · D]: the reverse of :func:`rows_of`, flat."""
    N: tl.constexpr = rows[0].shape[0]
    D: tl.constexpr = rows[0].shape[1]
    parts = rows
    for bit in tl.static_range(bits(K)):
        joined = ()
        for i in tl.static_range(K >> (bit + 1)):
            joined = joined + (tl.join(parts[i], parts[i + (K >> (bit + 1))]),)
        parts = joined
    whole = tl.permute(tl.reshape(parts[0], [N, D, K]), [0, 2, 1])
    return tl.reshape(whole, [N, K * D])
