"""Programs of all modes and what they are applied to, drawn at random from a seed."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

import trajcli
from trajcli.kernels.program import Band, Operands, Program, Windows
from trajcli.modes import make_mode

SEED = int(os.environ.get("TRAJCLI_SEED") or random.SystemRandom().randrange(2**31))
"""Of the cases that are others in every run; a failure names it."""

DOFS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 14, 17, 33)
FORMS = ("[1,1]", "[1,H]", "[B,1]", "[B,H]")
EVEN = FORMS[::2]
STATES = ("own", "shared", "indexed")
DTYPES = ("float32", "float64")


@dataclass(frozen=True)
class Job:
    """A mode, its options, and whether the actions are a recording."""

    mode: str
    options: tuple[tuple[str, Any], ...] = ()
    recorded: bool = False

    def __str__(self) -> str:
        return " ".join(
            [self.mode, *(str(x) for _, x in self.options), *["recorded"] * self.recorded]
        )

    @property
    def forms(self) -> tuple[str, ...]:
        return EVEN if self.mode == "bspline" else FORMS

    @property
    def least(self) -> int:
        """The fewest actions."""
        return dict(self.options).get(
            "window", 5 if self.recorded and self.mode == "central" else 1
        )

    def trajectory(self, actions: Any, start: Any, dt: Any, **more: Any) -> trajcli.Trajectory:
        """What a user gets: a recording is differentiated, all else is integrated."""
        options = {**dict(self.options), **more}
        if self.recorded:
            method = "backward" if self.mode == "clique" else self.mode
            return trajcli.differentiate(actions, dt=dt, method=method, **options)
        return trajcli.integrate(actions, start, dt, self.mode, **options)

    def program(self, horizon: int, uneven: bool) -> Program:
        return make_mode(self.mode, **dict(self.options)).program(horizon, self.recorded, uneven)


def job(mode: str, recorded: bool = False, **options: Any) -> Job:
    return Job(mode, tuple(options.items()), recorded)


CASCADES = (
    job("clique"),
    job("clique", recorded=True),
    *(
        job(mode, scheme=scheme)
        for mode in ("velocity", "acceleration", "jerk")
        for scheme in ("euler", "zoh", "foh")
    ),
)
BANDS = (
    job("central"),
    job("central", ends="goal"),
    job("central", recorded=True),
    job("central", convention="curobo"),
    job("teleport"),
    *(
        job("bspline", degree=degree, steps=steps, ends="plan" if (degree + steps) % 4 else "goal")
        for degree in (3, 4, 5)
        for steps in (1, 3, 5)
    ),
    job("savgol", recorded=True, window=7),
    job("savgol", recorded=True, window=7, degree=5),
    job("bspline", degree=4, steps=1, ends="goal"),
    job("bspline", degree=5, ends="goal", convention="curobo"),
)


@dataclass(frozen=True, eq=False)
class Case:
    """A program, what it is applied to, and what comes from above: four arrays or None."""

    name: str
    program: Program
    operands: Operands
    upstream: list[Any]
    dtype: str
    """Of the outputs and of the gradients of actions."""

    def __str__(self) -> str:
        return self.name


@cache
def case(
    work: Job,
    shape: tuple[int, int, int],
    form: str = "[1,1]",
    dtype: str = "float32",
    seed: int = 0,
    states: str = "own",
    **more: Any,
) -> Case:
    """Random operands for a job; more: options of its mode."""
    work = replace(work, options=work.options + tuple(more.items()))
    batch, horizon, _ = shape
    steps = max(horizon - work.recorded, 1) if "H" in form else 1
    program = work.program(horizon, steps > 1)
    name = f"{work} {shape} {dtype}, dt {form}, {states} states, seed {seed}"
    rng = np.random.default_rng(seed)
    dt = rng.uniform(0.02, 0.2, (batch if "B" in form else 1, steps))
    return applied(program, name, shape, dt, dtype, states, rng)


def applied(
    program: Program, name: str, shape: Sequence[int], dt: Any, dtype: str, states: str, rng: Any
) -> Case:
    batch, _, dofs = shape
    rows = {"own": batch, "shared": 1, "indexed": 3}[states]
    parts = rng.standard_normal((8, rows, dofs)).astype(dtype)
    indices = [rng.integers(0, rows, batch) if states == "indexed" else None for _ in range(2)]
    missing = rng.integers(0, 12)  # now and then a part that nobody gave
    present = [None if m == missing else part for m, part in enumerate(parts)]
    actions = rng.standard_normal(shape).astype(dtype)
    upstream = list(rng.standard_normal((4, batch, program.rows, dofs)).astype(dtype))
    operands = Operands(actions, dt, present[:4], present[4:], *indices)
    return Case(name, program, operands, upstream, dtype)


def random_case(jobs: Sequence[Job], draw: random.Random) -> Case:
    """Anything that can be put together from modes, options, shapes and types."""
    work = draw.choice(jobs)
    more = {}
    curobo = ("convention", "curobo") in work.options
    if not (work.recorded or curobo or work.mode == "bspline"):
        more["alignment"] = draw.choice(("full", "actions", "curobo"))
    dofs = draw.choice([*DOFS, draw.randint(1, 40)])
    horizon = draw.choice([draw.randint(1, 9), draw.randint(10, 70), 4200 // dofs % 300 + 5])
    batch = draw.randint(1, 11 if horizon < 70 else 2)
    shape = (batch, max(horizon, work.least), dofs)
    form, states, dtype = map(draw.choice, (work.forms, STATES, DTYPES))
    drawn = case.__wrapped__(work, shape, form, dtype, draw.randrange(2**31), states, **more)
    upstream = [g if draw.random() < 0.8 else None for g in drawn.upstream]
    return replace(drawn, upstream=upstream, dtype=draw.choice((dtype, *DTYPES)))


@cache
def random_cases(jobs: tuple[Job, ...], count: int, group: int) -> list[Case]:
    draw = random.Random(SEED + group)
    cases = [random_case(jobs, draw) for _ in range(count)]
    note = f"TRAJCLI_SEED={SEED}, group {group}, case"
    return [replace(x, name=f"{x} ({note} {k})") for k, x in enumerate(cases)]


@cache
def random_fit(seed: int) -> Case:
    """Any window and degree, of any recording that is long enough."""
    draw = random.Random(seed)
    degree = draw.choice((2, 3, 4, 5))
    window = 2 * draw.randint(degree // 2 + 1, 12) - 1
    window += 2 * (window <= degree)
    work = job("savgol", recorded=True, window=window, degree=degree)
    shape = (draw.randint(1, 4), window + draw.choice((0, 1, 9, 40)), draw.choice(DOFS))
    form, dtype = draw.choice(FORMS), draw.choice(DTYPES)
    drawn = case.__wrapped__(work, shape, form, dtype, draw.randrange(2**31))
    if drawn.program.table is None and draw.random() < 0.6:  # of each row some of its window
        windows, rng = drawn.program.windows, np.random.default_rng(seed)
        row, first = np.arange(shape[1]), windows.first()
        spans = np.empty((len(drawn.operands.dt), shape[1], 2), np.int64)
        for line in spans:
            begin = np.minimum(first + rng.integers(0, 1 + window - degree, shape[1]), row)
            end = np.maximum(begin + degree + rng.integers(0, 3, shape[1]), row)
            line[:, 1] = np.minimum(end, first + window - 1)
            line[:, 0] = np.minimum(begin, line[:, 1] - degree)
        drawn = replace(drawn, program=replace(drawn.program, spans=spans))
    return replace(drawn, name=f"{drawn}, seed {seed}")


@cache
def random_band(seed: int) -> Case:
    """Any band that kernels/program.py allows, of modes or not: any width, table, head and tail,
    windows that stand still, kinds that no row has, and now and then no rows."""
    draw, rng = random.Random(seed), np.random.default_rng(seed)
    uneven = draw.random() < 0.3
    width, window_steps = (5, 1) if uneven else (draw.randint(1, 7), draw.randint(1, 4))
    head, tail = (rng.standard_normal((draw.randint(0, 4), 4)) for _ in range(2))
    head[rng.random(head.shape) < 0.2] = 0.0
    horizon = draw.randint(1, 30)
    used = draw.choice((horizon, draw.randint(0, horizon)))
    held = draw.choice((0, 3)) if used else 0
    room = len(head) + used + held + len(tail) - width
    last = draw.choice((room, draw.randint(0, room))) if room > 0 else 0
    offset, shift = draw.randint(0, 2), draw.randint(0, 2)
    # the last rows are those of the last window, which has more kinds
    count = draw.randint(0, (last + shift + 1) * window_steps + 2) if room >= 0 else 0
    windows = Windows(count, last, offset, window_steps, shift)
    kinds = max((shift + 1) * window_steps, *windows.kind() + 1, 0) + draw.randint(0, 2)
    bases = [draw.randrange(width) for _ in range(kinds)]
    table = rng.standard_normal((kinds, 4, width - 1))
    table[rng.random(table.shape) < draw.choice((0.0, 0.3))] = 0.0
    if draw.random() < 0.2:
        table[:, 0] = 0.0
    program = Band(
        used=used,
        steps=draw.randint(1, horizon),
        head=head,
        tail=tail,
        held=held,
        windows=windows,
        width=width,
        base=tuple(bases if window_steps == 1 else bases[:1] * kinds),
        table=None if uneven else table,
        spacing=draw.randint(1, 3),
        start_row=draw.random() < 0.5,
    )
    shape = (draw.randint(1, 4), horizon, draw.choice(DOFS))
    lengths = horizon if uneven else draw.choice((1, horizon))
    dt = rng.uniform(0.3, 2.0, (draw.choice((1, shape[0])), lengths))
    name = f"a band of width {width}, seed {seed}"
    return applied(program, name, shape, dt, draw.choice(DTYPES), draw.choice(STATES), rng)
