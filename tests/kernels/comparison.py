"""Calls of the backends, their rows compared with those of torch, and their gradients with the
transpose of its rows. Those of torch are held to exact arithmetic by modes/test_exact.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from kernels.cases import Case

from trajcli.kernels.program import Gradients, Operands

RELATIVE = 1e-12
PER_ROW = 1.2e-16
"""The largest error before the last rounding is max(RELATIVE, PER_ROW·H) of the largest
magnitude along the trajectory and dof; a gradient's, of the sum of the magnitudes it is made of.
"""
LAST_ROUNDING = 0.5001
"""In units of the last place: half of one, and what the comparison itself rounds."""

NAMES = ("position", "velocity", "acceleration", "jerk")
INPUTS = ("actions", *(f"{role} {name}" for role in ("start", "goal") for name in NAMES))
EVERY_PART = (True,) * 4


FIT_RELATIVE = 1e-11
"""Where weights of fits are made for windows of any steps: some of them are ill-conditioned."""


Way = Callable[..., list[Any]]
"""rows or gradients: forward or back."""


def promised(case: Case) -> float:
    if getattr(case.program, "degree", None) and case.program.table is None:
        return FIT_RELATIVE
    return max(RELATIVE, PER_ROW * case.operands.actions.shape[1])


def rows(backend: str, case: Case, wanted: Sequence[bool] = EVERY_PART) -> list[Any]:
    """What the backend gives, four arrays; None where not wanted."""
    batch, _, dofs = case.operands.actions.shape
    shape = (batch, case.program.rows, dofs)
    out = [np.full(shape, np.nan, case.dtype) if want else None for want in wanted]
    return run(backend, "forward", case, case.operands, out)


def gradients(backend: str, case: Case, wanted: Sequence[bool] = (True,) * 9) -> list[Any]:
    """What the backend gives for the case's upstream: of actions, then of the parts of the start
    and those of the goal; None where not wanted."""
    batch, horizon, dofs = case.operands.actions.shape
    buffers = [np.full((batch, horizon, dofs), np.nan, case.dtype)]
    buffers += [np.full((batch, dofs), np.nan) for _ in range(8)]
    into = [x if want else None for x, want in zip(buffers, wanted, strict=True)]
    return run(backend, "adjoint", case, case.upstream, into)


def run(backend: str, function: str, case: Case, inputs: Any, results: list[Any]) -> list[Any]:
    """The function of the backend's module, on arrays or tensors; results as arrays."""
    module = import_module(f"trajcli.kernels.{MODULES[backend.partition(' ')[0]]}")
    convert: Any = (lambda x: x) if module.__name__.endswith("native") else tensor
    operands = Operands(*map_arrays(convert, case.operands))
    into = map_arrays(convert, results)
    if function == "forward":
        module.forward(case.program, operands, into)
    else:
        grads = Gradients(into[0], into[1:5], into[5:])
        module.adjoint(case.program, operands, map_arrays(convert, inputs), grads)
    return map_arrays(lambda x: x if isinstance(x, np.ndarray) else x.cpu().numpy(), into)


MODULES = {"native": "native", "torch": "torch_ops", "triton": "triton_ops"}


def map_arrays(function: Any, values: Sequence[Any]) -> list[Any]:
    result: list[Any] = []
    for x in values:
        if isinstance(x, list | tuple):
            result.append(map_arrays(function, x))
        else:
            result.append(None if x is None else function(x))
    return result


def tensor(values: Any) -> Any:
    import torch

    result = torch.from_numpy(np.ascontiguousarray(values).copy())
    return result.cuda() if torch.cuda.is_available() else result


# -- beside torch -------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def torch_rows(case: Case) -> list[Any]:
    return rows("torch", replace(case, dtype="float64"))


@lru_cache(maxsize=512)
def transposed_rows(case: Case) -> tuple[list[int], list[Any], list[Any]]:
    """Actions whose gradients are compared; the gradients of these and of the parts of start and
    goal, which are the transposed matrix of torch's rows times those from above; and the sums of
    the magnitudes that each is the sum of: Σ_m Σ_t |∂x_m[t]/∂input|·|gradient of x_m[t]|."""
    horizon = case.operands.actions.shape[1]
    places = list(range(horizon))
    if horizon > 400:  # the matrix would be large: a sample, and both ends
        drawn = np.random.default_rng(horizon).choice(horizon, 60, replace=False)
        places = sorted({*places[:30], *places[-30:], *map(int, drawn)})
    count = len(places)
    spans = getattr(case.program, "spans", None)
    batch = max(len(case.operands.dt), 1 if spans is None else len(spans))
    actions = np.zeros((batch, horizon, count + 8))
    actions[:, places, range(count)] = 1.0
    units = np.zeros((8, 1, count + 8))
    units[range(8), 0, range(count, count + 8)] = 1.0
    operands = Operands(actions, case.operands.dt, list(units[:4]), list(units[4:]))
    matrices = rows("torch", replace(case, operands=operands, dtype="float64"))
    result = []
    for function in (np.asarray, np.abs):
        total: Any = sum(
            np.swapaxes(function(matrix), 1, 2) @ function(grad.astype(np.float64))
            for matrix, grad in zip(matrices, case.upstream, strict=True)
            if grad is not None
        )
        if isinstance(total, int):  # nothing from above
            batch, _, dofs = case.operands.actions.shape
            total = np.zeros((batch, count + 8, dofs))
        result.append([total[:, :count], *np.moveaxis(total[:, count:], 1, 0)])
    return places, *result


def assert_right(way: Way, backend: str, case: Case) -> None:
    """The backend's rows are torch's, within twice what is promised of the largest along the
    trajectory and dof; or its gradients are the transpose of torch's rows."""
    result = way(backend, case)
    if way is rows:
        names, want = NAMES, torch_rows(case)
        # one fit of all points has one jerk, which may be small by chance
        windows = getattr(case.program, "windows", None)
        single = windows and windows.last == 0 and case.program.degree is not None
        axis = None if single else 1
        sizes = [np.abs(x).max(axis=axis, keepdims=True, initial=0.0) for x in want]
    else:
        names, (places, want, sizes) = INPUTS, transposed_rows(case)
        result[0] = result[0][:, places]
    for name, values, exact, size in zip(names, result, want, sizes, strict=True):
        note = f"{way.__name__} of {name}, {backend}: {case}"
        assert_within(values, exact, size, 2 * promised(case), note)


def assert_within(result: Any, want: Any, size: Any, relative: float, what: str) -> None:
    """Within that part of the size, and half a unit in the last place."""
    assert result.shape == want.shape, what
    assert np.isfinite(result).all(), f"{what}: {result[~np.isfinite(result)][0]} in the results"
    off = np.abs(result.astype(np.float64) - want)
    ulp = np.spacing(np.abs(result)).astype(np.float64)
    wrong = off > relative * size + LAST_ROUNDING * ulp
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(
            f"{what}: {wrong.sum()} of {wrong.size} values are wrong, the first at {first}: "
            f"{result[first]!r} for {want[first]!r}"
        )


# -- beside itself ------------------------------------------------------------------------------


def assert_same_alone(way: Way, backend: str, case: Case) -> None:
    """The first, the last and one between have the bits that they have without neighbours."""
    together = way(backend, case)
    batch = len(case.operands.actions)
    for b in (0, batch // 2, batch - 1):
        upstream = [None if g is None else g[b : b + 1] for g in case.upstream]
        alone = replace(case, operands=one(case.operands, b), upstream=upstream)
        for result, want in zip(way(backend, alone), together, strict=True):
            np.testing.assert_array_equal(result[0], want[b])


def one(operands: Operands, b: int) -> Operands:
    """Those of trajectory b."""
    dt = operands.dt[b : b + 1] if len(operands.dt) > 1 else operands.dt
    states = []
    for parts, index in (
        (operands.start, operands.start_index),
        (operands.goal, operands.goal_index),
    ):
        row = b if index is None else index[b]
        states.append([None if x is None else x[row : row + 1] if len(x) > 1 else x for x in parts])
    return Operands(operands.actions[b : b + 1], dt, *states)


def assert_same_without_others(way: Way, backend: str, case: Case) -> None:
    """Each result alone, and all but it, have the bits they have together."""
    together = way(backend, case)
    count = len(together)
    for m in range(count):
        for wanted in ([k == m for k in range(count)], [k != m for k in range(count)]):
            for alone, expected in zip(way(backend, case, wanted), together, strict=True):
                if alone is not None:
                    np.testing.assert_array_equal(alone, expected)
