"""Samples trajectories between their rows, on the polynomials that their modes define."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trajcli.arrays import float64, is_torch, library, readable, to_numpy
from trajcli.errors import InputError, UsageError, wrong_shape
from trajcli.kernels.program import Array, Floats
from trajcli.modes import MODES, QUANTITIES
from trajcli.modes.mode import promise

# A time within this share of a step of a row may be the time of that row.
_LEAST_SHARE = 1e-9
HALF_ULP = 2.0**-53
# For steps of one unit, by derivative from jerk to position: the derivatives from jerk on, at the
# beginning of a step, that change this derivative at its end by one, and none above it.
_CHANGES = ((1,), (6, -12), (60, -360, 720), (840, -10_080, 50_400, -100_800))


def taylor(
    mode: str, options: Mapping[str, Any], rows: Sequence[Array | None], knots: Array, at: Array
) -> tuple[list[Array], Array]:
    """Expands the curve of a mode in Taylor polynomials around its rows.

    ``rows`` are p, v, a, j [B, T, D] in the dtype that they were rounded to, None where absent, at
    times ``knots`` [b, T]. The result, in float64, has the derivatives of all orders at the row
    that each time ``at`` [b, N] belongs to, and the time since that row.
    """
    order = polynomial_order(mode, options)
    wide: list[Any] = [None if x is None else float64(x) for x in rows]
    if degree := spline_degree(mode, options):
        return _expand_spline(wide, [*map(half_ulp, rows)], knots, at, degree)
    # around the row that ends the step, so that the time of a row gives its action unchanged
    index = search(knots, at, right=False)
    tau = (at - take(knots, index))[..., None]
    known: list[Any] = [x if x is None else take(x, index) for x in wide[: order + 1]]
    if options["scheme"] == "foh":  # the first row has no step before it, and takes the next step
        before = (index - 1).clip(min=0)
        after = (before + 1).clip(max=knots.shape[1] - 1)
        slope = wide[order + 1] if order < 3 else None
        if slope is not None:  # the stored slope is of actions that were not rounded
            known.append(take(slope, after))
        else:
            rise = take(wide[order], after) - take(wide[order], before)
            known.append(rise / _step(knots, before))
    return known, tau


def half_ulp(rows: Array | None) -> float:
    """Looks up half a unit in the last place (ulp) of the dtype of rows, as a share of a value."""
    kind = "" if rows is None else str(rows.dtype).removeprefix("torch.")
    return {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}.get(kind, HALF_ULP)


def spline_degree(mode: str, options: Mapping[str, Any]) -> int:
    """Looks up the degree of the spline on which the rows of a mode lie; 0 without a spline."""
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
    """Says for which step a quantity is constant at its row: "into" or "out of" it; "" for none."""
    # From clique to jerk a_t − a_{t−1} = dt_t·j_t, except for linear jerks (foh); euler and zoh
    # hold an action for the whole step into its row. A cubic B-spline has one jerk from a knot to
    # the next, which begins with the row at the knot.
    if mode == "bspline":
        return "out of" if quantity == "jerk" and str(options["degree"]) == "3" else ""
    scheme = str(options.get("scheme"))
    if scheme not in ("euler", "zoh", "foh") or mode not in ("clique", *QUANTITIES[1:]):
        return ""
    is_difference = quantity == "jerk" and mode != "jerk"
    return "into" if is_difference or (quantity == mode and scheme != "foh") else ""


def is_known(mode: str, options: Mapping[str, Any]) -> bool:
    """Tells whether known polynomials join the rows of a mode; absolute dofs follow no scheme."""
    held = options.get("scheme") in ("zoh", "foh") and not options.get("absolute")
    return spline_degree(mode, options) > 0 or held


def polynomial_order(mode: str, options: Mapping[str, Any]) -> int:
    """Finds the highest derivative that values between rows are computed from; raises UsageError
    if no known polynomial joins the rows of the mode."""
    if spline_degree(mode, options):
        return 3
    scheme = options.get("scheme")
    scheme = f"{scheme} with absolute dofs" if scheme and options.get("absolute") else scheme
    if is_known(mode, options):
        return MODES[mode].action_order
    about = f"mode {mode}" if mode else "a trajectory of no mode"
    what, hint = "no polynomial is known between these rows", "resample interpolates any rows"
    expected = "scheme zoh or foh, or mode bspline"
    found = f"{about}, scheme {scheme}" if scheme else about
    raise UsageError(what, where="trajectory", expected=expected, found=found, hint=hint)


def finite_mode_outputs(mode: str, options: Mapping[str, Any], parts: Iterable[str]) -> list[str]:
    """Lists the outputs that are finite everywhere between the rows of a mode."""
    # foh is linear in the action, whose slope is finite as well
    order = polynomial_order(mode, options) + (options.get("scheme") == "foh")
    return [name for name in QUANTITIES[: order + 1] if name in parts]


def missing_parts(mode: str, options: Mapping[str, Any], parts: Iterable[str]) -> list[str]:
    """Lists the outputs that ``parts`` lacks to compute values between rows."""
    known, order = set(parts), polynomial_order(mode, options)
    # degrees 5 and 7 have derivatives above jerk, which follow from those below it
    needed = {5: 2, 7: 0}.get(spline_degree(mode, options), order)
    lowest = min([*map(QUANTITIES.index, known), needed])
    return [name for name in QUANTITIES[lowest : order + 1] if name not in known]


def end_slack(knots: Floats) -> list[Array]:
    """Bounds the rounding of the first and the last of knots [b, T] as sums of steps: [b, 1]."""
    ends = [min(1, knots.shape[1] - 1), knots.shape[1] - 1]
    return [_rounding(knots, np.full((len(knots), 1), end)) for end in ends]


def locate_times(
    times: Array, knots: Array, batch: int, rounding: float = 0.0, lengths: Array | None = None
) -> Array:
    """Moves times [N] or [B, N] that mean rows, up to rounding, onto these rows: [1 or B, N].

    ``knots`` [1 or B, T] are the times of the rows, of which ``lengths`` [B] are data; ``rounding``
    is theirs in seconds, in addition to that of sums of steps. Raises InputError for wrong times.
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
            trajectory = f"trajectory {number}, " if len(outside) > 1 else ""
            what, where = "a time that is not within the trajectory", f"{trajectory}entry {entry}"
            expected, found = f"{begin!r} to {end!r} s", values[number % len(values), entry].item()
            raise InputError(what, where=f"times, {where}", expected=expected, found=repr(found))
    # of the two rows around a time, either may be meant
    after, last = search(knots, at, right=False), knots.shape[1] - 1
    after = after.clip(max=last)
    for index in ((after - 1).clip(min=0), after):
        off: Any = at - take(knots, index)
        close = abs(off) <= _rounding(knots, after) + rounding
        at = at - (off.detach().where(close, 0.0) if is_torch(off) else np.where(close, off, 0.0))
    return at


def _rounding(knots: Array, index: Array) -> Array:
    """Bounds the rounding of the times of rows [b, N], which are sums of steps."""
    after = index.clip(min=min(1, knots.shape[1] - 1))
    step = take(knots, after) - take(knots, (after - 1).clip(min=0))
    # at most a share of the step, or short steps would vanish
    xp, share = library(knots), _LEAST_SHARE * step
    return xp.minimum(share, promise(knots.shape[1] - 1) * xp.abs(knots[:, -1:]))


def _expand_spline(
    rows: list[Array], half_ulps: list[float], knots: Array, at: Array, degree: int
) -> tuple[list[Array], Array]:
    """Expands rows on a spline around the row that begins each step."""
    index = search(knots, at, right=True) - 1
    tau = (at - take(knots, index))[..., None]
    known: list[Any] = [x if x is None else take(x, index) for x in rows]
    after, step = (index + 1).clip(max=knots.shape[1] - 1), _step(knots, index)
    bound: Any = 0.0 * step
    above = bound
    # Each degree above 3 lets the polynomial meet one more value at the end of the step: jerk, then
    # acceleration, velocity and position. It need not meet what may be rounding: over short steps
    # that would be a jerk beyond limits.
    for k in (3, 2, 1, 0)[: 4 if degree == 7 else degree - 3]:
        end: Any = take(rows[k], after)
        off = end - derivative(known, step, k)
        bound = bound * step + half_ulps[k] * (abs(end) + abs(known[k]))
        bound = bound + HALF_ULP * abs(take(knots, after)[..., None] * above)
        above = known[k]
        if k < 3:
            off = beyond_rounding(off, 2.0 * bound, half_ulps[k])
        jerk, known = off / step ** (3 - k), [*known, 0.0 * off]
        for i, weight in enumerate(_CHANGES[3 - k], 1):
            known[3 + i] = known[3 + i] + weight * jerk / step**i
    return known, tau


def beyond_rounding(values: Array, bound: Array, half: float) -> Any:
    """Replaces values within the bound of rounding by zero."""
    if is_torch(values):
        # gradients pass through rows of float64; those of narrower dtypes are rounding as well
        lost: Any = values.detach() if half == HALF_ULP else values
        return values - lost.where(abs(values) <= bound, 0.0)
    return np.where(abs(values) <= bound, 0.0, values)


def _step(knots: Array, index: Array) -> Array:
    last = knots.shape[1] - 1
    step = take(knots, (index + 1).clip(max=last)) - take(knots, index)
    # no step begins at the last row: 1
    return (step + 1.0 * (index == last))[..., None]


def derivative(known: Sequence[Any], tau: Array, order: int) -> Array:
    """Evaluates a derivative of Σ_m known_m·τᵐ/m! by Horner's rule; lower orders may be None."""
    total: Array = known[-1]
    # all derivatives above the highest are zero
    if order >= len(known):
        return total * 0.0
    for r in reversed(range(len(known) - order - 1)):
        total = known[order + r] + total * tau / (r + 1)
    return total


def search(knots: Array, at: Array, *, right: bool) -> Array:
    """Counts the knots before each time, with ``right`` also those at it, [b, N]."""
    # an index has no gradient, and torch searches rows of the same batch only
    if is_torch(at):
        torch = sys.modules["torch"]
        batch = max(len(knots), len(at))
        pair: tuple[Any, Any] = knots, at
        knots, at = (x.detach().expand(batch, -1).contiguous() for x in pair)
        index: Array = torch.searchsorted(knots, at, right=right)
        return index
    side: Any = "right" if right else "left"
    if len(knots) == 1:
        return np.searchsorted(knots[0], at, side)
    known: Any = knots
    stamps = np.broadcast_to(at, (len(knots), at.shape[1]))
    return np.stack([np.searchsorted(k, t, side) for k, t in zip(known, stamps, strict=True)])


def take(values: Array, index: Array) -> Array:
    """Selects rows [b, N] of values [b, T] or [b, T, D]."""
    if len(index) == 1 and not is_torch(values):
        # several times as fast as take_along_axis
        return np.take(values, index[0], axis=1)
    rows: Any = index[..., None] if values.ndim == 3 else index
    if is_torch(values):
        return values.take_along_dim(rows, 1)
    return np.take_along_axis(values, rows, 1)
