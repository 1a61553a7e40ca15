"""Every public function with every kind of argument gives the numbers of plain arrays, or an error.

What an argument looks like changes no number; what cannot be meant is refused in words.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from words import require_words_of_python

import trajcli
from trajcli import InputError, State, TrajcliError, Trajectory, UsageError, matrices, rotations

RANDOM = np.random.default_rng(5)
ROWS = RANDOM.integers(-9, 10, (2, 12, 2)).astype(float)
PLACES = RANDOM.integers(-9, 10, (2, 2)).astype(float)
STEPS = RANDOM.integers(1, 4, 11).astype(float)
STAMPS = np.concatenate([[2.0], 2.0 + np.cumsum(STEPS)])
NEW = np.array([1.0, 2.0, 3.5])
TURNS = rotations.exp(0.3 * RANDOM.standard_normal((2, 12, 3)))
RATES = RANDOM.integers(-1, 2, (2, 12, 3)).astype(float)
UNEVEN = np.array([1.0, 2.0, 1.0])
Call = Callable[..., Any]


def saved(rows: Any) -> Any:
    path = Path(os.environ["TRAJCLI_TEST_FOLDER"]) / "out.npz"
    Trajectory(rows, None, None, None, STAMPS).save(path, overwrite=True)
    return trajcli.load(path).position


def given(function: Call, **options: Any) -> Call:
    return lambda **arguments: function(**arguments, **options)


# a function, and arguments as it takes them
CALLS: dict[str, tuple[Call, dict[str, Any]]] = {
    "integrate": (trajcli.integrate, {"actions": ROWS, "start": PLACES, "dt": 0.5}),
    "integrate, times": (
        given(trajcli.integrate, start="zero"), {"actions": ROWS[:, 1:], "times": STAMPS}),
    "integrate, goal": (
        given(trajcli.integrate, start="zero", mode="bspline", ends="goal"),
        {"actions": ROWS, "goal": PLACES, "dt": 0.5}),
    "integrate, index": (
        given(trajcli.integrate, actions=ROWS, start=PLACES, dt=0.5),
        {"start_index": np.array([1, 0])}),
    "prepare": (
        lambda dt, **arrays: trajcli.prepare(ROWS.shape, dt=dt)(**arrays),
        {"actions": ROWS, "start": PLACES, "dt": 0.5}),
    "differentiate": (
        given(trajcli.differentiate, method="central"), {"positions": ROWS, "dt": STEPS}),
    "differentiate, smooth": (
        trajcli.differentiate,
        {"positions": ROWS, "times": STAMPS, "bandlimit": np.array([0.125, 0.0625])}),
    "fit": (
        given(trajcli.fit, knots=5),
        {"positions": ROWS, "dt": STEPS, "start": PLACES, "goal": PLACES}),
    "fit, times": (given(trajcli.fit, positions=ROWS), {"times": STAMPS, "error": 50.0}),
    "resample": (trajcli.resample, {"rows": ROWS, "dt": STEPS, "at": NEW}),
    "resample, times": (given(trajcli.resample, rows=ROWS), {"times": STAMPS, "rate": 2.0}),
    "sample": (
        lambda rows, time, times: trajcli.sample(
            Trajectory(rows, ROWS, ROWS, None, time, "acceleration", {"scheme": "zoh"}), times),
        {"rows": ROWS, "time": STAMPS, "times": NEW + 2.0}),
    "concatenate": (
        lambda rows, time: trajcli.concatenate([Trajectory(rows, None, None, None, time)] * 2),
        {"rows": ROWS, "time": STAMPS}),
    "retime": (
        lambda rows, limit: trajcli.retime(
            Trajectory(None, rows, None, None, STAMPS), {"velocity": limit}),
        {"rows": ROWS, "limit": np.array([9.0, 7.0])}),
    "score": (
        lambda rows, time, limit: trajcli.score(
            Trajectory(rows, None, None, None, time), {"velocity": limit}),
        {"rows": ROWS, "time": STAMPS, "limit": 9.0}),
    "load": (saved, {"rows": ROWS}),
    "operator": (given(trajcli.operator, horizon=3), {"dt": UNEVEN}),
    "operator, times": (given(trajcli.operator, horizon=3), {"times": STAMPS[:4]}),
    "difference_matrix": (given(matrices.difference_matrix, n=3), {"dt": UNEVEN}),
    "integration_matrix": (given(matrices.integration_matrix, n=3), {"dt": UNEVEN}),
    "clique_matrix": (given(matrices.clique_matrix, n=3), {"dt": UNEVEN}),
    "linspace": (given(matrices.linspace, rows=4), {"start": PLACES, "end": PLACES + 1.0}),
    "scale_gradient": (given(trajcli.scale_gradient, x=torch.ones(2)), {"factor": 2.0}),
    "clip_gradient": (given(trajcli.clip_gradient, x=torch.ones(2)), {"norm": 2.0}),
    "rotations.differentiate": (
        rotations.differentiate, {"quaternions": TURNS, "times": STAMPS}),
    "rotations.integrate": (
        rotations.integrate, {"actions": RATES, "start": TURNS[:, 0], "dt": 0.5}),
    "rotations.resample": (
        rotations.resample, {"quaternions": TURNS, "dt": STEPS, "at": NEW}),
    "rotations.sample": (
        given(rotations.sample, motion=rotations.differentiate(TURNS, dt=1.0)), {"times": NEW}),
    "rotations.compose": (rotations.compose, {"actions": TURNS, "start": TURNS[:, 0]}),
    "rotations.decompose": (rotations.decompose, {"quaternions": TURNS}),
    "rotations.to_quaternions": (rotations.to_quaternions, {"values": TURNS}),
    "rotations.from_quaternions": (
        given(rotations.from_quaternions, form="rotvec"), {"quaternions": TURNS}),
    "rotations.angle": (rotations.angle, {"a": TURNS, "b": TURNS[:, 1:2]}),
    "rotations.multiply": (rotations.multiply, {"a": TURNS, "b": TURNS[:, 1:2]}),
    "rotations.rotate": (rotations.rotate, {"quaternions": TURNS, "vectors": RATES}),
    "rotations.conjugate": (rotations.conjugate, {"quaternions": TURNS}),
    "rotations.continuous": (rotations.continuous, {"quaternions": TURNS}),
    "rotations.cumulative_product": (rotations.cumulative_product, {"quaternions": TURNS}),
    "rotations.exp": (rotations.exp, {"rotvecs": RATES}),
    "rotations.log": (rotations.log, {"quaternions": TURNS}),
}  # fmt: skip
OF_COUNTS = {"start_state_masks", "hold_matrix", "linear_matrix", "ramp_and_hold_matrix"}


def strided(x: Any) -> Any:
    return np.repeat(x, 2, -1)[..., ::2] if np.ndim(x) else x


def read_only(x: Any) -> Any:
    x = np.array(x)
    x.flags.writeable = False
    return x


def masked(x: Any, kind: type = float) -> Any:
    values = np.ceil(np.atleast_1d(x)).astype(kind)
    mask = np.zeros(values.shape, bool)
    mask.reshape(-1)[-1] = True
    return np.ma.masked_array(values, mask)


def broken(x: Any, value: float) -> Any:
    x = np.array(x, float)
    x.reshape(-1)[-1:] = value
    return x


def torch_of(kind: Any, **more: Any) -> Call:
    # copies, as torch has no negative strides
    return lambda x: torch.tensor(np.asarray(x).astype(float), **more).to(kind)


def frame(x: Any) -> Any:
    pandas = pytest.importorskip("pandas")
    return {1: pandas.Series, 2: pandas.DataFrame}.get(np.ndim(x), np.asarray)(x)


# what gives the result of the same numbers as float64, whatever that is
NUMBERS: dict[str, Call] = {
    "list": lambda x: np.asarray(x).tolist(),
    "list of tensors": lambda x: [*torch.tensor(np.asarray(x))] if np.ndim(x) else x,
    "float32": lambda x: np.asarray(x, np.float32),
    "float16": lambda x: np.asarray(x, np.float16),
    "longdouble": lambda x: np.asarray(x, np.longdouble),
    "int64": lambda x: np.ceil(x).astype(np.int64),
    "uint8": lambda x: np.abs(np.ceil(x)).astype(np.uint8),
    "big-endian": lambda x: np.asarray(x, ">f8"),
    "Fortran": np.asfortranarray,
    "strided": strided,
    "reversed": lambda x: np.asarray(x)[..., ::-1] if np.ndim(x) else x,
    "read-only": read_only,
    "masked, with nothing masked": np.ma.masked_array,
    "pandas": frame,
    "tensor": torch_of(torch.float64),
    "float32 tensor": torch_of(torch.float32),
    "bfloat16 tensor": torch_of(torch.bfloat16),
    "int32 tensor": lambda x: torch_of(torch.int32)(np.ceil(x)),
    "tensor with a gradient": torch_of(torch.float64, requires_grad=True),
    "float32 tensor with a gradient": torch_of(torch.float32, requires_grad=True),
    "strided tensor": lambda x: torch.tensor(np.repeat(x, 2, -1))[..., ::2] if np.ndim(x) else x,
    "one more axis": lambda x: np.asarray(x)[None],
    "one axis less": lambda x: np.asarray(x)[0] if np.ndim(x) else x,
    "no trajectories": lambda x: np.asarray(x)[:0] if np.ndim(x) else np.zeros(0),
    "no rows": lambda x: np.asarray(x)[:, :0] if np.ndim(x) > 1 else np.zeros(0),
    "one row": lambda x: np.asarray(x)[:, :1] if np.ndim(x) > 1 else np.atleast_1d(x)[:1],
    "twice as many": lambda x: np.concatenate([np.atleast_1d(x)] * 2, -1),
    "negative": lambda x: -np.asarray(x),
    "zero": lambda x: 0.0 * np.asarray(x),
    "NaN": lambda x: broken(x, np.nan),
    "infinite": lambda x: broken(x, np.inf),
}
# what is refused by every function
REFUSED: dict[str, Call] = {
    "masked": masked,
    "masked integers": lambda x: masked(x, int),
    "list of masked": lambda x: [*masked(x)],
    "word": lambda x: "fast",
    "numbers as words": lambda x: np.asarray(x).astype(str),
    "objects": lambda x: np.asarray(x).astype(object),
    "complex": lambda x: np.asarray(x) + 0j,
    "complex tensor": lambda x: torch.tensor(np.asarray(x) + 0j),
    "booleans": lambda x: np.asarray(x) > 0,
    "dict": lambda x: {"values": x},
    "ragged": lambda x: [[1.0], [1.0, 2.0]],
    "dates": lambda x: np.ceil(x).astype("datetime64[ns]"),
    "durations": lambda x: np.ceil(x).astype("timedelta64[s]"),
    "sparse": lambda x: torch.tensor(np.atleast_1d(x)).to_sparse(),
    "nested": lambda x: torch.nested.nested_tensor([*torch.tensor(np.atleast_1d(x))]),
    "jagged": lambda x: torch.nested.nested_tensor([torch.ones(2, 3)], layout=torch.jagged),
    "quantised": lambda x: torch.quantize_per_tensor(torch.tensor(x).float(), 0.1, 0, torch.qint8),
    "float8": torch_of(torch.float8_e4m3fn),
    "list of tensors with gradients": lambda x: [
        *torch.tensor(np.atleast_1d(x).astype(float)).requires_grad_()
    ],
    "trajectory": lambda x: Trajectory(x, x, x, x, STAMPS),
    "list of trajectories": lambda x: [Trajectory(x, x, x, x, STAMPS)] * 2,
    "object": lambda x: object(),
    "function": lambda x: np.sin,
}


def arrays(result: Any) -> Iterator[Any]:
    """Yields all numbers of a result."""
    if isinstance(result, Mapping):
        result = list(result.values())
    elif is_dataclass(result):
        result = [getattr(result, field.name) for field in fields(result)]
    if isinstance(result, list | tuple):
        for part in result:
            yield from arrays(part)
    elif result is not None and not isinstance(result, str | bool):
        yield result


def outcome(function: Call, arguments: Mapping[str, Any]) -> list[Any] | None:
    """Returns the numbers of a call; None where it is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NaN and Inf where they are allowed
        try:
            return list(arrays(function(**arguments)))
        except TrajcliError as error:
            require_words_of_python(error)
            return None


def plain(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.detach().double().numpy()
    return np.asarray([plain(y) for y in x] if isinstance(x, list | tuple) else x, np.float64)


def test_every_public_function_is_in_the_table() -> None:
    public = {name for name in trajcli.__all__ if inspect.isfunction(getattr(trajcli, name))}
    for room, prefix in ((matrices, ""), (rotations, "rotations.")):
        for name, _ in inspect.getmembers(room, inspect.isfunction):
            public |= {prefix + name} if name in room.__all__ else set()
    assert public == {name.split(",")[0] for name in CALLS} | OF_COUNTS


@pytest.mark.filterwarnings("ignore:.*(nested tensors|torch.quantize_per_tensor):UserWarning")
@pytest.mark.parametrize("name", CALLS)
def test_any_kind_of_argument_gives_float64_numbers_or_an_error(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRAJCLI_TEST_FOLDER", str(tmp_path))
    function, arguments = CALLS[name]
    assert outcome(function, arguments) is not None
    for role, value in arguments.items():
        results: dict[Any, Any] = {}
        for kind, make in ({} if role == "start_index" else NUMBERS).items():
            where, made = f"{role}: {kind}", make(value)
            numbers = plain(made)
            key = numbers.shape, numbers.tobytes()
            if key not in results:
                results[key] = outcome(function, {**arguments, role: numbers})
            want = results[key]
            for _ in range(2 if name in ("integrate", "differentiate") else 1):  # then prepared
                found = outcome(function, {**arguments, role: made})
                # a list of arrays may be a state; a gradient is kept or refused
                if found is None and (kind == "list of tensors" or "gradient" in kind):
                    continue
                assert (found is None) == (want is None), where
                near = 1e-12 if "16" not in kind and "32" not in kind else 2e-6
                for x, y in zip(found or (), want or (), strict=True):
                    np.testing.assert_allclose(plain(x), plain(y), near, near, err_msg=where)
                if "gradient" in kind and found and name != "load":
                    assert any(x.requires_grad for x in found if torch.is_tensor(x)), where
        for kind, make in REFUSED.items():
            assert outcome(function, {**arguments, role: make(value)}) is None, f"{role}: {kind}"


@pytest.mark.parametrize("function", [trajcli.integrate, trajcli.differentiate, trajcli.fit,
    trajcli.resample, trajcli.operator, rotations.differentiate, rotations.integrate,
    rotations.resample, matrices.hold_matrix])  # fmt: skip
def test_an_option_of_any_kind_is_taken_or_refused_in_words(function: Call) -> None:
    arguments: dict[str, Any] = {"dt": 0.5, "n": 4, "factor": 2, "horizon": 4, "knots": 5}
    arguments |= {"rate": 3.0, "actions": ROWS, "positions": ROWS, "rows": ROWS}
    arguments |= {"quaternions": TURNS}
    if function is trajcli.integrate:
        arguments |= {"start": "zero"}
    if function is rotations.integrate:
        arguments |= {"actions": RATES, "start": TURNS[:, 0]}
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind != p.VAR_KEYWORD]
    known = {name: arguments[name] for name in names if name in arguments}
    for name in set(names) - {"actions", "positions", "allow_nonfinite"}:
        for value in ("x", ["x"], 2.5, -1, [1], {}, 1j, np.int64(3), np.array(["x"]), None,
                      torch.tensor(3), torch.tensor(2.5)):  # fmt: skip
            outcome(function, {**known, name: value})


@pytest.mark.parametrize("pair", [
    (PLACES, PLACES), [PLACES, PLACES], (torch.ones(2), torch.ones(2)), ([1.0, 2.0], [0.0, 0.0]),
])  # fmt: skip
def test_a_pair_is_no_start_state(pair: Any) -> None:
    """For two trajectories it would be two positions, in silence."""
    for call in (
        lambda: trajcli.integrate(ROWS, pair, 0.5),
        lambda: trajcli.integrate(ROWS, "zero", 0.5, "bspline", ends="goal", goal=pair),
        lambda: trajcli.fit(ROWS, 0.5, knots=5, start=pair),
        lambda: trajcli.fit(ROWS, 0.5, knots=5, goal=pair),
        lambda: rotations.integrate(RATES, pair, 0.5),
    ):
        with pytest.raises(UsageError, match=r"State\(p, v\)"):
            call()
    assert trajcli.integrate(ROWS, PLACES.tolist(), 0.5).position[1, 0].tolist() == [*PLACES[1]]
    assert trajcli.integrate(ROWS, (1.0, 2.0), 0.5).position[1, 0].tolist() == [1.0, 2.0]


def test_steps_are_summed_in_every_function() -> None:
    steps, last = STEPS, np.concatenate([[7.0], STEPS])  # an entry for the step into row 0
    for dt in (steps, last, steps[None], last[None].repeat(2, 0), torch.tensor(steps)):
        want = trajcli.differentiate(ROWS, times=STAMPS, method="central")
        got = trajcli.differentiate(ROWS, dt=dt, method="central")
        np.testing.assert_allclose(got.jerk, want.jerk, 1e-12, 1e-12)
        for call in (
            given(trajcli.fit, positions=ROWS, knots=5),
            given(trajcli.resample, rows=ROWS, rate=3.0),
            given(rotations.resample, quaternions=TURNS, at=NEW),
        ):
            for x, y in zip(arrays(call(dt=dt)), arrays(call(times=STAMPS)), strict=True):
                np.testing.assert_allclose(x, y, 1e-12, 1e-12)
    of_each = np.array([[0.5], [0.25]])
    both, second = trajcli.fit(ROWS, of_each, knots=5), trajcli.fit(ROWS[1], 0.25, knots=5)
    np.testing.assert_allclose(both.start.velocity[1], second.start.velocity[0], 1e-12)


def test_a_fit_starts_where_integrate_would() -> None:
    for start in (State(PLACES), PLACES, PLACES.tolist(), torch.tensor(PLACES)):
        fitted = trajcli.fit(ROWS, 0.5, knots=5, start=start, goal=PLACES[0])
        assert (fitted.start.position == PLACES).all()
        assert (fitted.goal.position == PLACES[0]).all()
    assert not trajcli.fit(ROWS, 0.5, knots=5, start="zero").start.position.any()
    for wrong in ({"position": PLACES}, "first", PLACES[:, :1]):
        with pytest.raises((InputError, UsageError)):
            trajcli.fit(ROWS, 0.5, knots=5, start=wrong)


@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
def test_whole_stamps_are_subtracted_before_they_are_rounded(library: Call) -> None:
    """Half a step from a row, a time is no row's, however large the stamps are."""
    since = 1_700_000_000_000_000_001
    stamps = since + np.arange(12) * 101
    for make in (np.int64, np.uint64)[: 1 if library is torch.tensor else 2]:
        times, at = library(stamps.astype(make)), library([50.5, 101.0])
        rows = trajcli.resample(library(ROWS), "linear", times=times, at=at).position
        np.testing.assert_allclose(rows[:, 0], ROWS[:, :2].mean(1), 1e-15)
        np.testing.assert_array_equal(rows[:, 1], ROWS[:, 1])
    fits = [trajcli.fit(library(ROWS), times=library(x), knots=5) for x in (stamps, stamps - since)]
    assert torch.equal(*(torch.as_tensor(fitted.actions) for fitted in fits))
    plans = [trajcli.integrate(ROWS, "zero", 101.0, scheme="zoh") for _ in range(2)]
    times, between = np.append(stamps, stamps[-1] + 101), 50 + 101 * np.arange(3)
    plans[0] = replace(plans[0], time=times)
    at = since + between, between
    samples = [trajcli.sample(*pair) for pair in zip(plans, at, strict=True)]
    np.testing.assert_array_equal(samples[0].position, samples[1].position)
    assert trajcli.score(plans[0])["duration"][0] == 12 * 101


def test_small_whole_stamps_of_tensors_are_taken() -> None:
    for kind in (torch.uint16, torch.uint32, torch.uint64):
        times = torch.arange(12).to(kind)
        rows = trajcli.resample(torch.tensor(ROWS), "linear", times=times, at=torch.tensor([0.5]))
        np.testing.assert_allclose(rows.position[:, 0], ROWS[:, :2].mean(1), 1e-15)


@pytest.mark.parametrize("bound", [np.float64(1.0), np.float32(1.0), np.array([1.0]), [1.0]])
def test_bounds_of_gradients_are_numbers_of_any_kind(bound: Any) -> None:
    x = torch.zeros(1, 2, requires_grad=True)
    for of, want in (({"norm": bound}, [[0.6, 0.8]]), ({"value": bound}, [[1.0, 1.0]])):
        (trajcli.clip_gradient(x, **of) * torch.tensor([[3.0, 4.0]])).sum().backward()
        torch.testing.assert_close(x.grad, torch.tensor(want))
        x.grad = None


@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
def test_rotations_of_other_numbers_are_refused_in_words(library: Call) -> None:
    a, b = library(np.ones((5, 4))), library(np.ones((6, 4)))
    for function in (rotations.multiply, rotations.angle):
        with pytest.raises(InputError, match="do not broadcast"):
            function(a, b)


def test_results_of_tensors_are_tensors_and_lose_no_gradient() -> None:
    plan = trajcli.integrate(torch.tensor(ROWS), "zero", 0.5, scheme="foh")
    of_numpy = trajcli.integrate(ROWS, "zero", 0.5, scheme="foh")

    def mapped(actions: Any) -> Any:
        return list(arrays(call(trajcli.integrate(actions, "zero", 0.5))))

    for call in (lambda x: trajcli.retime(x, {"velocity": 1.0}), trajcli.score):
        for found, want in zip(arrays(call(plan)), arrays(call(of_numpy)), strict=True):
            assert isinstance(found, torch.Tensor)
            np.testing.assert_allclose(found, want, rtol=1e-14)  # sums in another order
        actions = torch.tensor(ROWS, requires_grad=True)
        moving = trajcli.integrate(actions, "zero", 0.5, scheme="foh")
        assert any(x.requires_grad for x in arrays(call(moving)))
        with pytest.raises(UsageError, match="cannot be read"):
            torch.func.vmap(mapped)(actions.detach())
        with torch.no_grad():
            call(moving)


def test_values_are_checked_within_transforms_that_can_read_them() -> None:
    wrong, dt = torch.tensor(broken(ROWS, np.nan)), torch.tensor(0.5, dtype=torch.float64)

    def cost(rows: Any, dt: Any = 0.5) -> Any:
        return trajcli.integrate(rows, "zero", dt).position.sum()

    rows = torch.tensor(ROWS)
    for call in (
        lambda: torch.func.grad(cost)(wrong),
        lambda: torch.func.jvp(cost, (wrong,), (wrong,)),
        lambda: torch.func.grad(cost, argnums=1)(rows, -dt),
        lambda: torch.func.vmap(lambda x: trajcli.fit(x, 0.5, error=9.0).actions)(rows[:1]),
    ):
        with pytest.raises(TrajcliError):
            call()


@pytest.mark.parametrize("steps", [
    {"dt": torch.tensor(0.5)}, {"dt": torch.tensor([[0.5]])}, {"times": torch.tensor(STAMPS)},
])  # fmt: skip
def test_smooth_takes_steps_as_tensors_within_transforms(steps: dict[str, Any]) -> None:
    rows = torch.tensor(ROWS, requires_grad=True)

    def cost(rows: Any) -> Any:
        return trajcli.differentiate(rows, bandlimit=0.125, **steps).jerk.square().sum()

    (want,) = torch.autograd.grad(cost(rows), rows)
    near: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9 * float(want.abs().max())}
    rows = rows.detach()
    torch.testing.assert_close(torch.func.grad(cost)(rows), want, **near)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(cost))(rows), want, **near)
    mapped = torch.func.vmap(lambda dt: trajcli.differentiate(rows, dt=dt, bandlimit=0.1).jerk)
    with pytest.raises(UsageError, match="cannot be read"):
        mapped(torch.tensor([0.5, 0.25]))


def test_what_the_package_lists_is_there() -> None:
    listed = dir(trajcli)
    assert all(hasattr(trajcli, name) for name in listed)
    rooms = {"errors", "matrices", "modes", "rotations"}
    assert {*listed} == {*trajcli.__all__, *rooms, "__version__"}
    for name in ("matrixes", "Fault", "Stopped", "MODES", "Fitted", "Retimed", "Operator"):
        assert not hasattr(trajcli, name)


@pytest.mark.parametrize("room", [matrices, rotations])
def test_rooms_show_what_they_define_and_not_what_they_import(room: ModuleType) -> None:
    assert dir(room) == sorted(room.__all__)
    taken: dict[str, Any] = {}
    exec(f"from {room.__name__} import *", taken)
    assert taken.keys() - {"__builtins__"} == {*room.__all__}
    for name in room.__all__:
        home = getattr(taken[name], "__module__", room.__name__)
        assert home == room.__name__ or home.startswith(f"{room.__name__}."), name


def test_the_environment_counts_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    actions, start = np.ones((1, 7, 2)), np.zeros((1, 2))
    for _ in range(2):  # prepared, and then from the cache
        monkeypatch.delenv("TRAJCLI_THREADS", raising=False)
        monkeypatch.delenv("TRAJCLI_BACKEND", raising=False)
        want = trajcli.integrate(actions, start, 0.25).position
        wrong = [("THREADS", "many"), ("THREADS", "0"), ("LEVEL", "2"), ("LEVEL", "v3")]
        for name, value in (*wrong, ("BACKEND", "fortran")):
            monkeypatch.setenv(f"TRAJCLI_{name}", value)
            with pytest.raises(UsageError, match=value):
                trajcli.integrate(actions, start, 0.25)
            with pytest.raises(UsageError, match=value):
                trajcli.differentiate(actions, dt=0.25, method="backward")
            monkeypatch.delenv(f"TRAJCLI_{name}")
        monkeypatch.setenv("TRAJCLI_THREADS", "1")
        monkeypatch.setenv("TRAJCLI_BACKEND", "torch")
        np.testing.assert_allclose(trajcli.integrate(actions, start, 0.25).position, want, 1e-15)
    monkeypatch.setenv("TRAJCLI_BACKEND", "triton")
    with pytest.raises(UsageError):
        trajcli.integrate(actions, start, 0.25)
    trajcli.integrate(actions, start, 0.25, backend="auto")  # a word beats the environment


@pytest.mark.parametrize("value", [None, ROWS, "out.h5", {"position": ROWS}])
def test_what_is_no_trajectory_is_called_that(value: Any) -> None:
    for call in (lambda: trajcli.sample(value, NEW), lambda: trajcli.score(value)):
        with pytest.raises(InputError, match="not a Trajectory"):
            call()
