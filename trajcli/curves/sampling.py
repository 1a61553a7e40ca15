"""Samples trajectories between their rows, on the polynomials that their modes define."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trajcli.arrays import float64, is_torch, readable, to_numpy
from trajcli.errors import InputError, UsageError, wrong_shape
from trajcli.kernels.program import Array, Floats
from trajcli.modes import MODES, QUANTITIES
from trajcli.modes.mode import promise

# A time within this share of a step of a row may be the time of that row.
_LEAST_SHARE = 1e-9
HALF_PLACE = 2.0**-53
# Of a jerk that ends a step at its value of there, then changes acceleration, velocity or position
# there by one, and nothing that is above: its derivatives at the beginning of a step of one unit.
_CHANGES = ((1,), (6, -12), (60, -360, 720), (840, -10_080, 50_400, -100_800))


def taylor(
    mode: str, options: Mapping[str, Any], rows: list[Array], knots: Array, at: Array
) -> tuple[list[Array], Array]:
    """Returns the Taylor polynomials that a mode with a known curve has between its rows.

    They are the derivatives of all orders on the row that each time ``at`` [b, N] belongs to, and
    the time from there, in float64. ``rows`` are p, v, a, j [B, T, D] in the type that they were
    rounded to, None where absent, ``knots`` their times [b, T]. Raises UsageError for a mode whose
    rows no known polynomial joins.
    """
    order = polynomial_order(mode, options)
    wide = [None if x is None else float64(x) for x in rows]
    if degree := spline_degree(mode, options):
        return _spline(wide, [*map(half_place, rows)], knots, at, degree)
    return _held(wide, knots, at, order, options["scheme"])


def half_place(rows: Array | None) -> float:
    """Returns half a last place of a type of rows, as a share of a value."""
    kind = "" if rows is None else str(rows.dtype).removeprefix("torch.")
    return {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}.get(kind, HALF_PLACE)


def spline_degree(mode: str, options: Mapping[str, Any]) -> int:
    """Returns the degree of the spline that a mode's rows lie on; 0 where they lie on none."""
    if mode == "smooth":
        return 2 * int(options["order"]) - 1
    return int(options["degree"]) if mode == "bspline" else 0


def curve_name(mode: str, options: Mapping[str, Any]) -> str:
    """Names the curve between the rows of a mode for messages: jerk zoh, bspline."""
    return f"{mode} {options.get('scheme', '')}".rstrip()


def is_cascade(mode: str, options: Mapping[str, Any]) -> bool:
    """Whether a mode holds actions over steps by a scheme, which absolute dofs have not."""
    return mode != "" and "scheme" in options


def hold_side(mode: str, options: Mapping[str, Any], quantity: str) -> str:
    """Says for which step a quantity is constant at its row: "into" or "out of" it; "" for none.

    From clique to jerk a_t − a_{t−1} = dt_t·j_t, except for linear jerks (foh); euler and zoh hold
    an action for the whole step into its row. A cubic B-spline has one jerk from a knot to the
    next, which begins with the row at the knot.
    """
    if mode == "bspline":
        return "out of" if quantity == "jerk" and str(options["degree"]) == "3" else ""
    scheme = str(options.get("scheme"))
    if scheme not in ("euler", "zoh", "foh") or mode not in ("clique", *QUANTITIES[1:]):
        return ""
    is_difference = quantity == "jerk" and mode != "jerk"
    return "into" if is_difference or (quantity == mode and scheme != "foh") else ""


def is_known(mode: str, options: Mapping[str, Any]) -> bool:
    """Whether known polynomials join the rows of a mode; none join absolute dofs."""
    held = options.get("scheme") in ("zoh", "foh") and not options.get("absolute")
    return spline_degree(mode, options) > 0 or held


def polynomial_order(mode: str, options: Mapping[str, Any]) -> int:
    """Returns the highest order of derivative that values between rows are computed from.

    Raises UsageError for a mode and options whose rows no known polynomial joins.
    """
    if spline_degree(mode, options):
        return 3
    scheme = options.get("scheme")
    scheme = f"{scheme} with absolute dofs" if scheme and options.get("absolute") else scheme
    if is_known(mode, options):
        return MODES[mode].action_order
    about = f"mode {mode}" if mode else "a trajectory of no mode"
    raise UsageError(
        "no polynomial is known between these rows",
        where="trajectory",
        expected="scheme zoh or foh, or mode bspline",
        found=f"{about}, scheme {scheme}" if scheme else about,
        hint="resample interpolates any rows",
    )


def finite_order(mode: str, options: Mapping[str, Any]) -> int:
    """Returns the highest order of derivative that is finite everywhere between the rows."""
    # foh is linear in the action, whose slope is finite as well
    return polynomial_order(mode, options) + (options.get("scheme") == "foh")


def missing_parts(mode: str, options: Mapping[str, Any], parts: Iterable[str]) -> list[str]:
    """Returns the outputs that values between rows are computed from and that ``parts`` lacks."""
    known, order = set(parts), polynomial_order(mode, options)
    # degrees 5 and 7 need what is below jerk too, for the derivatives above it
    needed = {5: 2, 7: 0}.get(spline_degree(mode, options), order)
    lowest = min([*map(QUANTITIES.index, known), needed])
    return [name for name in QUANTITIES[lowest : order + 1] if name not in known]


def end_slack(knots: Floats) -> list[Floats]:
    """Returns how far the first and the last of knots [b, T], and times at them, may be off as sums
    of steps, [b, 1] each."""
    ends = [min(1, knots.shape[1] - 1), knots.shape[1] - 1]
    return [_rounding(knots, np.full((len(knots), 1), end)) for end in ends]


def locate_times(
    times: Array, knots: Array, batch: int, rounding: float = 0.0, lengths: Array | None = None
) -> Array:
    """Returns times [N] or [B, N] as float64 [1 or B, N], moved onto rows that they mean.

    ``rounding`` is that of the knots, in seconds, beside the rounding of sums of steps. Raises
    InputError for times of another shape, or outside knots [1 or B, T], of which ``lengths`` [B]
    counts those that are data.
    """
    at = float64(times)
    at = at[None] if at.ndim == 1 else at
    if at.ndim != 2 or at.shape[0] not in (1, batch):
        expected, what = f"[N] or [{batch}, N]", "wrong shape of times"
        raise InputError(wrong_shape("times", expected, times.shape, what=what))
    if readable(at) and readable(knots):  # not within torch.func, nor while a graph is captured
        values, known = to_numpy(at), to_numpy(knots)
        (early, late), ends = end_slack(known), known[:, -1:]
        if lengths is not None:
            last = to_numpy(lengths)[:, None] - 1
            ends, late = take(known, last.clip(min=0)), _rounding(known, last.clip(min=0))
            ends = np.where(last < 0, -np.inf, ends)
        outside = ~((values >= known[:, :1] - early) & (values <= ends + late))
        if outside.any():
            number, entry = np.argwhere(outside)[0].tolist()
            begin, end = known[number % len(known), 0].item(), ends[number % len(ends), 0].item()
            several = f"trajectory {number}, " if len(outside) > 1 else ""
            raise InputError(
                "a time that is not within the trajectory",
                where=f"times, {several}entry {entry}",
                expected=f"{begin!r} to {end!r} s",
                found=repr(float(values[number % len(values), entry])),
            )
    after, last = search(knots, at, right=False), knots.shape[1] - 1
    after = after.clip(max=last)
    # a time just before or after a row may mean that row
    for index in ((after - 1).clip(min=0), after):
        off = at - take(knots, index)
        near = abs(off) <= _rounding(knots, after) + rounding
        at = at - (off.detach().where(near, 0.0) if is_torch(off) else np.where(near, off, 0.0))
    return at


def _rounding(knots: Array, index: Array) -> Array:
    """Returns how far the time of a row [b, N] may be off as a sum of steps."""
    after = index.clip(min=min(1, knots.shape[1] - 1))
    step = take(knots, after) - take(knots, (after - 1).clip(min=0))
    of_sums = promise(knots.shape[1] - 1) * abs(knots[:, -1:])
    of_step = _LEAST_SHARE * step  # never more, or short steps would vanish
    return of_step.minimum(of_sums) if is_torch(step) else np.minimum(of_step, of_sums)


def _held(
    rows: list[Array], knots: Array, at: Array, order: int, scheme: str
) -> tuple[list[Array], Array]:
    """Returns Taylor polynomials around the row that ends the step, and the time from there.

    The action is that of the row, so that the time of the row gives it unchanged.
    """
    index, above = search(knots, at, right=False), rows[order + 1 : order + 2]
    tau = (at - take(knots, index))[..., None]
    known: list[Array] = [x if x is None else take(x, index) for x in rows[: order + 1]]
    if scheme == "foh":  # the first row has no step before it, and takes the one after
        before = (index - 1).clip(min=0)
        after = (before + 1).clip(max=knots.shape[1] - 1)
        if not above or above[0] is None:
            rise = take(rows[order], after) - take(rows[order], before)
            known.append(rise / _step(knots, before))
        else:  # which was computed from actions that were not rounded
            known.append(take(above[0], after))
    return known, tau


def _spline(
    rows: list[Array], places: list[float], knots: Array, at: Array, degree: int
) -> tuple[list[Array], Array]:
    """Returns Taylor polynomials around the row that begins the step, and the time from there."""
    # a row begins the step after it
    index = search(knots, at, right=True) - 1
    tau = (at - take(knots, index))[..., None]
    known: list[Array] = [x if x is None else take(x, index) for x in rows]
    after, step = (index + 1).clip(max=knots.shape[1] - 1), _step(knots, index)
    bound, above = 0.0, 0.0 * step
    # so high a degree meets jerk at the end of the step, then acceleration, velocity and position;
    # it does not meet what may be rounding, which over short steps would be a jerk beyond limits
    for k in (3, 2, 1, 0)[: 4 if degree == 7 else degree - 3]:
        there = take(rows[k], after)
        off = there - derivative(known, step, k)
        bound = bound * step + places[k] * (abs(there) + abs(known[k]))
        bound = bound + HALF_PLACE * abs(take(knots, after)[..., None] * above)
        above = known[k]
        if k < 3:
            off = beyond_rounding(off, 2.0 * bound, places[k])
        jerk, known = off / step ** (3 - k), [*known, 0.0 * off]
        for i, weight in enumerate(_CHANGES[3 - k], 1):
            known[3 + i] = known[3 + i] + weight * jerk / step**i
    return known, tau


def beyond_rounding(values: Array, bound: Array, place: float) -> Array:
    """Returns values, with zero where they are within the bound, which rounding may be all of.

    Gradients pass there, but for types narrower than float64: in these, they are rounding as well.
    """
    if is_torch(values):
        lost = values.detach() if place == HALF_PLACE else values
        return values - lost.where(abs(values) <= bound, 0.0)
    return np.where(abs(values) <= bound, 0.0, values)


def _step(knots: Array, index: Array) -> Array:
    """Returns the step that begins at a row, [b, N, 1]; 1 after the last row."""
    last = knots.shape[1] - 1
    step = take(knots, (index + 1).clip(max=last)) - take(knots, index)
    return (step + 1.0 * (index == last))[..., None]


def derivative(known: Sequence[Array], tau: Array, order: int) -> Array:
    """Returns a derivative of Σ_m known_m·τᵐ/m!, by Horner's rule; lower orders may be None."""
    if order >= len(known):
        return known[-1] * 0.0
    total = known[-1]
    for r in reversed(range(len(known) - order - 1)):
        total = known[order + r] + total * tau / (r + 1)
    return total


def search(knots: Array, at: Array, *, right: bool) -> Array:
    """Returns how many knots lie before each time, or with ``right`` at it, [b, N]."""
    if is_torch(at):
        torch = sys.modules["torch"]
        batch = max(len(knots), len(at))
        knots, at = (x.detach().expand(batch, -1).contiguous() for x in (knots, at))
        return torch.searchsorted(knots, at, right=right)
    side: Any = "right" if right else "left"
    if len(knots) == 1:
        return np.searchsorted(knots[0], at, side)
    stamps = np.broadcast_to(at, (len(knots), at.shape[1]))
    return np.stack([np.searchsorted(k, t, side) for k, t in zip(knots, stamps, strict=True)])


def take(values: Array, index: Array) -> Array:
    """Returns values [b, T] or [b, T, D] at rows [b, N]."""
    if len(index) == 1 and not is_torch(values):
        return np.take(values, index[0], axis=1)  # several times as fast as take_along_axis
    index = index[..., None] if values.ndim == 3 else index
    return (
        values.take_along_dim(index, 1)
        if is_torch(values)
        else np.take_along_axis(values, index, 1)
    )
