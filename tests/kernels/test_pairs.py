"""Pair arithmetic against fractions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trajcli.kernels.pairs import Pair, from_fraction, power, split, two_product, two_sum

PROPERTY = settings(max_examples=150, deadline=None, derandomize=True, database=None)

# Products and errors of products must stay within float64's normal range.
SIZES = st.floats(1e-60, 1e60)
NUMBERS = st.one_of(st.just(0.0), SIZES, SIZES.map(operator.neg))
NEAR = st.floats(-2.0, 2.0).filter(lambda x: x == 0 or abs(x) > 1e-60)


@st.composite
def pairs(draw: st.DrawFn, numbers: st.SearchStrategy[float] = NUMBERS) -> Pair:
    """hi and a lo of at most half a unit in hi's last place."""
    hi = draw(numbers)
    part = draw(st.floats(-1.0, 1.0).filter(lambda x: x == 0 or abs(x) > 1e-20))
    return two_sum(hi, float(np.spacing(abs(hi))) / 2 * part) if hi else Pair(0.0, 0.0)


def exact(pair: Pair) -> Fraction:
    return Fraction(pair.hi) + Fraction(pair.lo)


def assert_normal(pair: Pair) -> None:
    """lo is at most half a unit in the last place of hi."""
    assert pair.hi + pair.lo == pair.hi


@PROPERTY
@given(NUMBERS, NUMBERS)
def test_two_sum_loses_nothing(a: float, b: float) -> None:
    total = two_sum(a, b)
    assert exact(total) == Fraction(a) + Fraction(b)
    assert total.hi == a + b


@PROPERTY
@given(NEAR, NEAR)
def test_two_sum_loses_nothing_where_terms_cancel(a: float, b: float) -> None:
    for other in (b, -a, -a * (1 + 2**-52), -a / 2):
        assert exact(two_sum(a, other)) == Fraction(a) + Fraction(other)


@PROPERTY
@given(NUMBERS, NUMBERS)
def test_two_product_loses_nothing(a: float, b: float) -> None:
    product = two_product(a, b)
    assert exact(product) == Fraction(a) * Fraction(b)
    assert product.hi == a * b
    assert exact(two_product(a, b, b_parts=split(b))) == Fraction(a) * Fraction(b)


@PROPERTY
@given(NUMBERS)
def test_split_gives_two_halves_of_26_bits(a: float) -> None:
    high, low = split(a)
    assert Fraction(high) + Fraction(low) == Fraction(a)
    for half in (high, low):
        numerator = abs(half.as_integer_ratio()[0])
        odd = numerator // (numerator & -numerator) if numerator else 0
        assert odd.bit_length() <= 26


# Relative errors; of sums relative to the terms, which may cancel.
BITS = {"add": 103, "sub": 103, "mul": 101, "truediv": 100}


@pytest.mark.parametrize("name", BITS)
@PROPERTY
@given(a=pairs(), b=pairs())
def test_pairs_are_right_to_a_hundred_bits(name: str, a: Pair, b: Pair) -> None:
    operation: Callable[..., Fraction | Pair] = getattr(operator, name)
    assume(name != "truediv" or b.hi != 0)
    found = operation(a, b)
    wanted = operation(exact(a), exact(b))
    scale = abs(exact(a)) + abs(exact(b)) if name in ("add", "sub") else abs(wanted)
    assert abs(exact(found) - wanted) <= scale / 2 ** BITS[name]
    if name in ("mul", "truediv"):
        assert_normal(found)


@PROPERTY
@given(pairs(NEAR), st.floats(-1e-12, 1e-12))
def test_the_difference_of_nearly_equal_pairs_keeps_their_error_alone(a: Pair, part: float) -> None:
    b = a + Pair(a.hi * part)
    found = exact(a - b)
    assert abs(found - (exact(a) - exact(b))) <= abs(exact(a)) / 2**103


@PROPERTY
@given(pairs())
def test_a_pair_less_itself_is_zero_and_over_itself_is_one(a: Pair) -> None:
    assert exact(a - a) == 0
    if a.hi:
        assert abs(exact(a / a) - 1) <= Fraction(1, 2**100)


@PROPERTY
@given(pairs())
def test_minus_a_pair_is_minus_its_number(a: Pair) -> None:
    assert exact(-a) == -exact(a)


@PROPERTY
@given(st.fractions(max_denominator=10**30))
def test_a_fraction_becomes_a_pair_right_to_105_bits(value: Fraction) -> None:
    pair = from_fraction(value)
    assert abs(exact(pair) - value) <= abs(value) / 2**105
    assert_normal(pair)


@PROPERTY
@given(pairs(st.floats(1e-9, 1e9)), st.integers(0, 5))
def test_powers_are_repeated_products(base: Pair, exponent: int) -> None:
    wanted = exact(base) ** exponent
    assert abs(exact(power(base, exponent)) - wanted) <= wanted / 2**98
    assert exact(power(base, 0)) == 1


@pytest.mark.parametrize("name", BITS)
def test_numbers_arrays_and_tensors_give_the_same_bits(name: str) -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(4, 200)) * [[1], [1e-17], [1], [1e-17]]
    operation = getattr(operator, name)
    a_hi, a_lo, b_hi, b_lo = values
    array = operation(Pair(a_hi, a_lo), Pair(b_hi, b_lo))
    tensors = [torch.as_tensor(v) for v in values]
    tensor = operation(Pair(*tensors[:2]), Pair(*tensors[2:]))
    plain = [operation(Pair(*row[:2]), Pair(*row[2:])) for row in values.T.tolist()]
    for part in ("hi", "lo"):
        wanted = [getattr(p, part) for p in plain]
        assert getattr(array, part).tolist() == wanted
        assert getattr(tensor, part).tolist() == wanted


def test_a_pairs_number_has_its_derivative() -> None:
    x = torch.tensor([0.7, -1.3, 2.9], dtype=torch.float64, requires_grad=True)
    three = from_fraction(3)
    number = (Pair(x) * Pair(x) - Pair(x) / three) / (Pair(x) + three)
    (number.hi + number.lo).sum().backward()
    at = x.detach()
    slope = ((2 * at - 1 / 3) * (at + 3) - (at**2 - at / 3)) / (at + 3) ** 2
    torch.testing.assert_close(x.grad, slope, rtol=1e-14, atol=0)


def test_a_part_of_a_pair_is_the_pair_of_the_parts() -> None:
    pair = Pair(np.arange(6.0).reshape(2, 3), np.arange(6.0).reshape(2, 3) / 1e17)
    assert (pair[:, 1].hi == [1, 4]).all()
    assert (pair[:, 1].lo == np.array([1, 4]) / 1e17).all()
