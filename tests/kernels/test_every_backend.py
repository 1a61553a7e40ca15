"""Every CPU backend and instruction set: results and gradients, as anyone who calls sees them.

Only :func:`trajcli.integrate` is called, so this holds whatever the kernels look like inside.
Short trajectories are compared with exact arithmetic: the weights of every output on every input
are found by putting in unit vectors, their slopes by steps of 2⁻¹⁰⁰; gradients are the weights'
transposes. Random ones, of any length, are compared with the backend in torch.

Random cases are others each time. A failure names its seed; ``TRAJCLI_SEED`` brings it back.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import exact
import numpy as np
import pytest
import torch
from exact import ORDERS, PARTS
from gmpy2 import mpq
from recordings import trajectory_of

from trajcli import State
from trajcli.kernels import native

SEED = int(os.environ.get("TRAJCLI_SEED") or random.SystemRandom().randrange(2**31))
BACKENDS = ["torch", "native 1", "native 3", "native 4"]
"""torch, and the compiled kernels held to each instruction set: any machine's, AVX2, AVX-512."""

CASCADES: list[Any] = [
    ("clique", {}, False),
    ("clique", {}, True),
    *(
        (mode, {"scheme": scheme}, False)
        for mode in ("velocity", "acceleration", "jerk")
        for scheme in ("euler", "zoh", "foh")
    ),
]
CENTRAL: list[Any] = [
    ("central", {}, False),
    ("central", {"ends": "goal"}, False),
    ("central", {}, True),
]
BSPLINES: list[Any] = [
    ("bspline", {"degree": degree, "steps": steps, "ends": ends}, False)
    for degree in (3, 4, 5)
    for steps in (1, 3, 5)
    for ends in ("plan", "goal")
]
MODES = [*CASCADES, *CENTRAL, *BSPLINES]
DOFS = (1, 3, 5, 7, 8, 9, 17)
FORMS = ("number", "[B,1]", "[H]", "[B,H]")
EVEN = FORMS[:2]
DTYPES = ("float32", "float64")


_known: dict[tuple[Any, str, int], Any] = {}


def once(work: Callable[[Problem], Any], sample: Problem) -> Any:
    """What the work finds, found once for all instruction sets."""
    key = work, str(sample), sample.seed
    if key not in _known:
        _known[key] = work(sample)
    return _known[key]


def name_of(case: Any) -> str:
    mode, options, recorded = case
    return " ".join([mode, *map(str, options.values()), *["recording"] * recorded])


each_mode = pytest.mark.parametrize("case", MODES, ids=name_of)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Torch's threads wait for each other in loops: on a busy machine that takes most of a test."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A backend by name; the instruction set is set already."""
    name, _, level = request.param.partition(" ")
    if name == "native":
        if native.absence():
            pytest.skip(native.absence())
        monkeypatch.setenv("TRAJCLI_INSTRUCTIONS", level)
        wanted = {"3": "x86-64-v3", "4": "x86-64-v4"}.get(level, "baseline")
        if native.instruction_set() != wanted:
            pytest.skip(f"this machine has no {wanted}")
    return str(name)


# -- problems and what a backend makes of them -----------------------------------------------


@dataclass
class Problem:
    """Inputs as NumPy arrays, and the seed of the gradients that come from above."""

    mode: str
    options: dict[str, Any]
    recorded: bool
    actions: Any
    start: list[Any]
    goal: list[Any]
    dt: Any
    form: str
    seed: int
    dtype: str | None = None
    used: tuple[str, ...] = PARTS

    @property
    def horizon(self) -> int:
        return int(self.actions.shape[1])

    def arguments(self, actions: Any, dt: Any, start: list[Any], goal: list[Any]) -> dict[str, Any]:
        sample = {"actions": actions, "dt": dt, "mode": self.mode, "dtype": self.dtype}
        sample["start"] = "first" if self.recorded else State(*start)
        if goal:
            sample["goal"] = State(*goal)
        return sample | self.options

    def upstream(self, rows: int) -> Any:
        """Gradients of the outputs, [4, B, T, D], of values that float32 has."""
        batch, _, dofs = self.actions.shape
        drawn = np.random.default_rng(self.seed).standard_normal((4, batch, rows, dofs))
        drawn *= np.array([part in self.used for part in PARTS])[:, None, None, None]
        return drawn.astype(np.float32)

    def __str__(self) -> str:
        shape, dtype = self.actions.shape, self.actions.dtype
        return (
            f"{self.mode} {self.options} recorded={self.recorded} {shape} {dtype} to "
            f"{self.dtype or dtype}, dt {self.form}, upstream of {', '.join(self.used)}"
        )


def problem(
    case: Any, shape: tuple[int, int, int], form: str, dtype: str, seed: int, **more: Any
) -> Problem:
    mode, options, recorded = case
    options = options | more
    rng = np.random.default_rng(seed)
    batch, horizon, dofs = shape
    count = horizon - recorded
    shapes = {"number": (), "[H]": (count,), "[B,1]": (batch, 1), "[B,H]": (batch, count)}
    goals = 0 if options.get("ends") != "goal" else 1 if mode == "central" else 4
    dt = np.asarray(rng.uniform(0.02, 0.2, size=shapes[form]))
    states = rng.standard_normal((4 + goals, batch, dofs)).astype(dtype)
    return Problem(
        mode,
        options,
        recorded,
        actions=rng.standard_normal(shape).astype(dtype),
        start=[] if recorded else list(states[:4]),
        goal=list(states[4:]),
        dt=dt,
        form=form,
        seed=seed,
    )


def results(sample: Problem, backend: str = "torch") -> dict[str, Any]:
    """Outputs and gradients by name, on tensors."""
    inputs = [sample.actions, sample.dt, *sample.start, *sample.goal]
    leaves = [torch.tensor(values, requires_grad=True) for values in inputs]
    states = leaves[2:]
    count = len(sample.start)
    result = trajectory_of(
        **sample.arguments(*leaves[:2], states[:count], states[count:]), backend=backend
    )
    outputs = [getattr(result, part) for part in PARTS]
    used = [m for m in range(4) if PARTS[m] in sample.used]
    upstream = torch.as_tensor(sample.upstream(outputs[0].shape[1])).to(outputs[0].dtype)
    grads = torch.autograd.grad(
        [outputs[m] for m in used],
        leaves,
        [upstream[m] for m in used],
        allow_unused=True,
        materialize_grads=True,
    )
    values = {part: out.detach().numpy() for part, out in zip(PARTS, outputs, strict=True)}
    of = zip(names_of_gradients(sample), grads, strict=True)
    return values | {name: grad.numpy() for name, grad in of}


def names_of_gradients(sample: Problem) -> list[str]:
    states = [("start", sample.start), ("goal", sample.goal)]
    parts = [f"{role} {part}" for role, values in states for part in PARTS[: len(values)]]
    return [f"gradient of {name}" for name in ("actions", "dt", *parts)]


def on_numpy(sample: Problem, backend: str) -> dict[str, Any]:
    """Outputs by name, on NumPy arrays."""
    arguments = sample.arguments(sample.actions, sample.dt, sample.start, sample.goal)
    result = trajectory_of(**arguments, backend=backend)
    return {part: getattr(result, part) for part in PARTS}


def assert_near(result: Any, want: Any, size: Any, what: str, relative: float = 1e-12) -> None:
    """Within that part of ``size``, the magnitude of what was added up; float32 within a unit in
    the last place of it more."""
    assert result.shape == want.shape, what
    allowed = relative * np.broadcast_to(size, want.shape)
    if result.dtype == np.float32:
        allowed = allowed + np.spacing(np.abs(want).astype(np.float32))
    off = np.abs(result.astype(np.float64) - want)
    wrong = ~(off <= allowed)
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{what}: {wrong.sum()} of {wrong.size} values are wrong, the first at {first}: "
            f"{result[first]!r} for {want[first]!r}"
        )


# -- exact arithmetic ------------------------------------------------------------------------

Key = tuple[str, tuple[tuple[str, Any], ...], bool, int]


@cache
def exact_weights(key: Key, steps: tuple[mpq, ...]) -> Any:
    """Of every output on every input of one dof, [inputs, 4, T] of fractions: linear it all is.

    Inputs: the actions, the parts of the start, those of the goal.
    """
    mode, sample, recorded, horizon = key
    options = dict(sample)
    goals = 0 if options.get("ends") != "goal" else 1 if mode == "central" else 4
    count = horizon + (0 if recorded else 4) + goals
    result = []
    for k in range(count):
        unit = [mpq(int(i == k)) for i in range(count)]
        actions, start, goal = unit[:horizon], unit[horizon : horizon + 4], unit[horizon + 4 :]
        if mode == "bspline":
            columns = exact.bspline(
                actions, start, steps[0], options["degree"], options["steps"], goal or None
            )
        elif mode == "central":
            columns = (
                exact.recorded_central(actions, steps)
                if recorded
                else exact.central(actions, start, steps, goal[0] if goal else None)
            )
        elif recorded:
            columns = exact.recorded_cascade(actions, steps)
        else:
            scheme = options.get("scheme", "euler")
            columns = exact.cascade(actions, start, steps, ORDERS[mode], scheme)
        if options.get("frames") == "actions":
            columns = [column[1:] for column in columns]
        result.append(columns)
    return np.array(result, dtype=object)


@cache
def weights_of(key: Key, steps: tuple[mpq, ...]) -> Any:
    return exact_weights(key, steps).astype(np.float64)


@cache
def slopes_of(key: Key, steps: tuple[mpq, ...], each: bool) -> list[Any]:
    """How the weights change with each step, or with all of them together."""
    tiny = mpq(1, 2**100)
    here = exact_weights(key, steps)
    result = []
    for k in range(len(steps) if each else 1):
        there = tuple(dt + tiny * (k == i or not each) for i, dt in enumerate(steps))
        result.append(((exact_weights.__wrapped__(key, there) - here) / tiny).astype(np.float64))
    return result


def expected(sample: Problem) -> dict[str, tuple[Any, Any]]:
    """Outputs and gradients by name, each with the magnitudes of what they are sums of."""
    batch, horizon, dofs = sample.actions.shape
    key = (sample.mode, tuple(sample.options.items()), sample.recorded, horizon)
    of_each = sample.form not in EVEN
    states = np.array([*sample.start, *sample.goal], dtype=np.float64).reshape(-1, batch, dofs)
    steps = np.broadcast_to(sample.dt, (batch, horizon - sample.recorded))
    result: dict[str, list[Any]] = {}
    for b in range(batch):
        inputs = np.concatenate([sample.actions[b], states[:, b]])
        row = tuple(map(mpq, steps[b].tolist()))
        weights = weights_of(key, row)
        upstream = sample.upstream(weights.shape[2])[:, b].astype(np.float64)
        slopes = np.array(slopes_of(key, row, of_each))
        outputs, grads, by_dt = (
            [np.einsum(rule, *map(kind, terms)) for kind in (np.array, np.abs)]
            for rule, *terms in (
                ("imt,id->mtd", weights, inputs),
                ("imt,mtd->id", weights, upstream),
                ("simt,id,mtd->s", slopes, inputs, upstream),
            )
        )
        if sample.mode in ("central", "bspline"):  # of points, which are subtracted and divided
            knot = float(min(row)) * sample.options.get("steps", 1)
            over = knot ** -np.arange(4.0)
            of_states = [knot**m for part in (sample.start, sample.goal) for m in range(len(part))]
            powers = np.array([1.0] * horizon + of_states)
            outputs[1] = outputs[1] + over[:, None, None] * np.abs(inputs * powers[:, None]).max(0)
            bound = (over[:, None] * np.abs(upstream).max(1)).sum(0)
            grads[1] = grads[1] + powers[:, None] * bound
        names = names_of_gradients(sample)
        one = {part: [x[m] for x in outputs] for m, part in enumerate(PARTS)}
        one |= {names[0]: [x[:horizon] for x in grads], names[1]: by_dt}
        one |= {name: [x[horizon + k] for x in grads] for k, name in enumerate(names[2:])}
        for name, pair in one.items():
            result.setdefault(name, []).append(pair)
    both = {name: [np.stack(x) for x in zip(*pairs, strict=True)] for name, pairs in result.items()}
    by_dt = both["gradient of dt"]
    if sample.form in ("number", "[H]"):
        by_dt = [x.sum(0) for x in by_dt]
    both["gradient of dt"] = [x.reshape(sample.dt.shape) for x in by_dt]
    return {name: (values, sizes) for name, (values, sizes) in both.items()}


def of_dt(sample: Problem) -> float:
    """How near a gradient of dt can come: it is found from the outputs as they are rounded."""
    return 2.0**-22 if (sample.dtype or sample.actions.dtype) == "float32" else 1e-12


def assert_exact(sample: Problem, backend: str, note: str = "") -> None:
    want = once(expected, sample)
    for result in (results(sample, backend), on_numpy(sample, backend)):
        for name, values in result.items():
            relative = of_dt(sample) if name == "gradient of dt" else 1e-12
            assert_near(values, *want[name], f"{name} of {sample}{note}", relative)


# -- tests -----------------------------------------------------------------------------------


@each_mode
def test_results_and_gradients_are_exact_for_any_number_of_dofs(case: Any, backend: str) -> None:
    """However many dofs there are, and whether or not they fill the machine's vectors: outputs
    and gradients of actions, start, goal and dt are those of exact arithmetic."""
    dofs = DOFS if backend == "native" else (3, 9)
    forms = EVEN if case[0] == "bspline" else FORMS
    for seed, form in enumerate(forms):  # the same steps for all dofs: weights are found once
        for k, D in enumerate(dofs, start=seed):
            for dtype in DTYPES if case in CASCADES else [DTYPES[k % 2]]:
                fewer = k % 3 == 0 and not case[2] and case[0] != "bspline"
                frames = {"frames": "actions"} if fewer else {}
                assert_exact(problem(case, (2, 5, D), form, dtype, seed, **frames), backend)


@pytest.mark.parametrize("batch", range(2))
def test_short_random_cases_are_exact(batch: int, backend: str) -> None:
    """The same beside exact arithmetic, with values that no case before had."""
    rng = random.Random(SEED - 1 - batch)
    for k in range(20):
        case = rng.choice([CASCADES, CASCADES, CENTRAL, BSPLINES][rng.randrange(4)])
        shape = (rng.randint(1, 4), rng.randint(5, 7), rng.choice(DOFS))
        form = rng.choice(EVEN if case[0] == "bspline" else FORMS)
        sample = problem(case, shape, form, rng.choice(DTYPES), rng.randrange(2**31))
        assert_exact(sample, backend, f"\nTRAJCLI_SEED={SEED}, batch {batch}, case {k}")
