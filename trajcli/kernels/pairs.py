"""Numbers as unevaluated sums of two float64: hi + lo, about 106 bits.

Small steps make derivatives the difference of nearly equal numbers, and long horizons make
positions the sum of many; float64 alone loses up to 10 digits there. Carrying the rounding
error of every operation along costs a few more operations and gives results that are right
to the last bit of float64 in all but absurd cases.

Only ``+ - * /`` are used, so the parts may be Python floats, NumPy arrays or torch tensors
(all float64), and torch differentiates through them: the derivative of ``hi`` is the
derivative of the number, that of ``lo`` is zero.

Sources: T. J. Dekker, "A floating-point technique for extending the available precision",
Numer. Math. 18 (1971); D. E. Knuth, TAOCP vol. 2, 4.2.2; T. Ogita, S. M. Rump, S. Oishi,
"Accurate sum and dot product", SIAM J. Sci. Comput. 26 (2005).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

Array = Any
"""float, numpy.ndarray or torch.Tensor, float64."""

_SPLITTER = 134217729.0  # 2**27 + 1


def two_sum(a: Array, b: Array) -> Pair:
    """a + b without error."""
    total = a + b
    b_part = total - a
    return Pair(total, (a - (total - b_part)) + (b - b_part))


def _ordered_sum(a: Array, b: Array) -> Pair:
    """a + b without error, where |a| >= |b| or a is 0."""
    total = a + b
    return Pair(total, b - (total - a))


def split(a: Array) -> tuple[Array, Array]:
    """a as a sum of two numbers of 26 bits each."""
    scaled = _SPLITTER * a
    high = scaled - (scaled - a)
    return high, a - high


def two_product(a: Array, b: Array, b_parts: tuple[Array, Array] | None = None) -> Pair:
    """a * b without error (up to 1e300, beyond which lo is not finite).

    b_parts: ``split(b)``, where the caller has it already.
    """
    product = a * b
    a_high, a_low = split(a)
    b_high, b_low = split(b) if b_parts is None else b_parts
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return Pair(product, error)


@dataclass(frozen=True, eq=False)
class Pair:
    """hi + lo, with |lo| at most half a unit in the last place of hi after each operation."""

    hi: Array
    lo: Array = 0.0

    def __add__(self, other: Pair) -> Pair:
        total = two_sum(self.hi, other.hi)
        return _ordered_sum(total.hi, total.lo + (self.lo + other.lo))

    def __neg__(self) -> Pair:
        return Pair(-self.hi, -self.lo)

    def __sub__(self, other: Pair) -> Pair:
        return self + (-other)

    def __mul__(self, other: Pair) -> Pair:
        product = two_product(self.hi, other.hi)
        return _ordered_sum(product.hi, product.lo + (self.hi * other.lo + self.lo * other.hi))

    def __truediv__(self, other: Pair) -> Pair:
        quotient = self.hi / other.hi
        back = two_product(quotient, other.hi)
        rest = ((self.hi - back.hi) - back.lo) + (self.lo - quotient * other.lo)
        return _ordered_sum(quotient, rest / other.hi)

    def __getitem__(self, key: Any) -> Pair:
        return Pair(self.hi[key], self.lo[key])


@lru_cache(maxsize=1024)
def from_fraction(value: Fraction | int) -> Pair:
    """A rational number to about 106 bits, as a pair of Python floats."""
    high = float(value)
    return Pair(high, float(Fraction(value) - Fraction(high)))


def power(base: Pair, exponent: int) -> Pair:
    """base ** exponent for a whole exponent >= 0, by repeated products."""
    result = Pair(base.hi * 0.0 + 1.0, base.hi * 0.0)
    for _ in range(exponent):
        result = result * base
    return result
