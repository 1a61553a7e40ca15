"""Quaternions: SciPy's Rotation, half turns, signs, refusals, derivatives."""

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation
from torch.autograd import gradcheck, gradgradcheck

from trajcli import InputError, UsageError, rotations
from trajcli.rotations.quaternions import rates_of_log, slope_of_log

WXYZ, XYZW = [3, 0, 1, 2], [1, 2, 3, 0]
NEAR = {"atol": 2e-15, "rtol": 2e-15}


def orientations(count=200, seed=0):
    """Random ones, identity, half turns about every axis, and turns of 1e-9 and π − 1e-9."""
    rng = np.random.default_rng(seed)
    axes = rng.normal(size=(count, 3))
    axes /= np.linalg.norm(axes, axis=1)[:, None]
    angles = rng.choice([1e-160, 1e-9, 1e-3, 0.1, 0.3, 1.0, 3.0, np.pi - 1e-9], (count, 1))
    random = Rotation.from_rotvec(axes * angles).as_quat()[:, WXYZ]
    return np.concatenate([np.eye(4), random])


def scipy_of(quaternions):
    return Rotation.from_quat(quaternions[..., XYZW])


def test_products_exponentials_and_forms_are_scipys():
    a, b = orientations(seed=1), orientations(seed=2)
    vectors = np.random.default_rng(3).normal(size=(len(a), 3))
    product = rotations.multiply(a, b)
    expected = (scipy_of(a) * scipy_of(b)).as_quat()[:, WXYZ]
    np.testing.assert_allclose(product * np.sign((product * expected).sum(1))[:, None], expected,
                               **NEAR)  # fmt: skip
    np.testing.assert_allclose(rotations.rotate(a, vectors), scipy_of(a).apply(vectors), **NEAR)
    np.testing.assert_allclose(rotations.log(a), scipy_of(a).as_rotvec(), **NEAR)
    turned = rotations.exp(7.0 * vectors)
    expected = Rotation.from_rotvec(7.0 * vectors)
    np.testing.assert_allclose(rotations.angle(turned, expected.as_quat()[:, WXYZ]), 0, atol=2e-15)
    matrices = rotations.from_quaternions(a, "matrix").reshape(-1, 3, 3)
    np.testing.assert_allclose(matrices, scipy_of(a).as_matrix(), **NEAR)
    np.testing.assert_allclose(rotations.angle(a, b), (scipy_of(a) * scipy_of(b).inv()).magnitude(),
                               atol=1e-15)  # fmt: skip


@pytest.mark.parametrize("form", rotations.FORMS)
@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
def test_every_form_gives_its_rotations_back(form, library):
    quaternions = orientations()
    values = rotations.from_quaternions(library(quaternions), form)
    back = np.asarray(rotations.to_quaternions(values, form))
    np.testing.assert_allclose(rotations.angle(back, quaternions), 0, atol=2e-15)
    np.testing.assert_allclose(np.linalg.norm(back, axis=1), 1.0, rtol=3e-16)
    if form == "matrix":
        columns = np.asarray(values).reshape(-1, 3, 3)[:, :, :2].swapaxes(1, 2).reshape(-1, 6)
        np.testing.assert_allclose(rotations.from_quaternions(quaternions, "rot6d"), columns)


def test_six_numbers_of_a_network_are_made_orthogonal():
    values = np.array([[2.0, 0.0, 0.0, 1.0, 3.0, 0.0]])
    np.testing.assert_array_equal(rotations.to_quaternions(values, "rot6d"), [[1.0, 0, 0, 0]])


def test_norms_are_normalised_up_to_a_thousandth_and_refused_beyond():
    q = orientations()
    np.testing.assert_allclose(rotations.to_quaternions(q * 1.001), q, atol=3e-16)
    with pytest.raises(InputError, match=r"entry \[3\]") as error:
        rotations.to_quaternions(q * np.where(np.arange(len(q)) == 3, 1.0011, 1.0)[:, None])
    assert error.value.faults[0].what == "not rotations"
    for form, values in {
        "matrix": -np.eye(3).reshape(1, 9),
        "rot6d": np.ones((1, 6)),
        "rotvec": np.array([[np.inf, 0.0, 0.0]]),
        "wxyz": np.array([[np.nan, 0.0, 0.0, 1.0]]),
    }.items():
        with pytest.raises(InputError, match="not rotations"):
            rotations.to_quaternions(values, form)
    assert np.isnan(rotations.to_quaternions(values, allow_nonfinite=True)).all()
    with pytest.raises(InputError, match=r"\[\.\.\., 4\]"):
        rotations.to_quaternions(np.ones((2, 3)))
    with pytest.raises(UsageError, match="euler"):
        rotations.to_quaternions(q, "euler")


def test_signs_are_continuous_across_flips_and_missing_rows():
    turns = np.linspace(0.0, 6.0 * np.pi, 400)[:, None] * [0.6, 0.0, 0.8]
    q = rotations.exp(turns)  # which is continuous: a whole turn is −1
    flipped = q * np.random.default_rng(0).choice([-1.0, 1.0], (400, 1))
    flipped[50:55] = np.nan
    for values in (flipped, torch.tensor(flipped)):
        result = np.asarray(rotations.continuous(values))
        assert np.isnan(result[50:55]).all()
        np.testing.assert_array_equal(np.delete(result, range(50, 55), 0),
                                      np.delete(q, range(50, 55), 0))  # fmt: skip


def test_running_products_are_those_of_a_loop():
    for count in (1, 2, 3, 7, 64, 101):
        steps = orientations(count)[4:]
        products, product = rotations.cumulative_product(steps), np.array([1.0, 0, 0, 0])
        for k, step in enumerate(steps):
            product = rotations.multiply(step, product)
            np.testing.assert_allclose(products[k], product, atol=1e-14)


def slope(f):
    return lambda t: torch.func.jvp(f, (t,), (torch.ones_like(t),))[1]


def test_rates_of_a_logarithm_are_the_derivatives_of_its_exponential():
    """By forward differentiation of t ↦ exp(φ(t)), which knows none of the formulas."""
    rng = np.random.default_rng(0)
    for size in (0.0, 0.2, 4.5):
        terms = torch.tensor(rng.normal(size=(4, 3)))
        terms[0] *= size / terms[0].norm()

        def omega(t, terms=terms):
            def quaternion(t):
                return rotations.exp(sum(c * t**k for k, c in enumerate(terms)))

            inverse = rotations.conjugate(quaternion(t))
            return 2.0 * rotations.multiply(slope(quaternion)(t), inverse)[..., 1:]

        t = torch.zeros((), dtype=torch.float64)
        slopes = [math_factor * c for math_factor, c in zip((1, 2, 6), terms[1:], strict=True)]
        rates = rates_of_log(terms[0], *slopes)
        for rate, f in zip(rates, (omega, slope(omega), slope(slope(omega))), strict=True):
            np.testing.assert_allclose(rate, f(t), atol=1e-11)
        np.testing.assert_allclose(slope_of_log(terms[0], rates[0]), terms[1], atol=1e-12)


def test_derivatives_at_zero_and_at_a_half_turn_are_the_limits():
    zero = torch.zeros(3, dtype=torch.float64)
    slope = torch.func.jacrev(rotations.exp)(zero)
    np.testing.assert_array_equal(slope, np.concatenate([np.zeros((1, 3)), 0.5 * np.eye(3)]))
    curve = torch.func.jacfwd(torch.func.jacrev(rotations.exp))(zero)
    np.testing.assert_allclose(curve[0], -0.25 * np.eye(3))
    identity = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    expected = np.concatenate([np.zeros((3, 1)), 2.0 * np.eye(3)], 1)
    np.testing.assert_array_equal(torch.func.jacrev(rotations.log)(identity), expected)
    half = torch.tensor([0.0, 1, 0, 0], dtype=torch.float64)  # across the turn angles shrink again
    expected = [[-2.0, 0, 0, 0], [0, 0, np.pi, 0], [0, 0, 0, np.pi]]
    np.testing.assert_allclose(torch.func.jacrev(rotations.log)(half), expected, atol=1e-15)


@pytest.mark.parametrize("form", rotations.FORMS)
def test_forms_have_first_and_second_derivatives(form):
    q = torch.tensor(orientations(8)[4:] + 0.01 * np.eye(4)[0])
    q = q / q.norm(dim=1, keepdim=True)
    values = rotations.from_quaternions(q, form).detach().requires_grad_()

    def there(values):  # on the rotations, from where checks would step aside
        return rotations.FORMS[form][1](values)

    def back(q):
        return rotations.from_quaternions(q / (q * q).sum(-1)[..., None] ** 0.5, form)

    q = q.detach().requires_grad_()
    for call, x in ((there, values), (back, q)):
        assert gradcheck(call, x, fast_mode=True)
        assert gradgradcheck(call, x, fast_mode=True)
