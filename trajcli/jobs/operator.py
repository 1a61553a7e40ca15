"""A mode's matrices, to a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trajcli import __version__
from trajcli.checks import require_counts
from trajcli.errors import Fault, Gathering, UsageError
from trajcli.files.outputs import discarding, open_output
from trajcli.files.placing import refuse_input, refuse_output
from trajcli.files.schema import Schema, Variable, time_variable
from trajcli.jobs.lookup import find_dt
from trajcli.jobs.names import without_folders
from trajcli.jobs.places import Files
from trajcli.modes import PARTS, make_mode
from trajcli.operators import Csr, Operator, operator_of

_LONG_NAMES = {
    "A": "actions to position, velocity, acceleration, jerk of all rows",
    "C": "start state to position, velocity, acceleration, jerk of all rows",
    "G": "goal state to position, velocity, acceleration, jerk of all rows",
}
_COLUMNS = {"A": "action", "C": "start_part", "G": "goal_part"}


@dataclass(frozen=True)
class OperatorRequest:
    """What the command line asked for, in its own words."""

    horizon: int
    out: Path
    mode: str
    options: Mapping[str, Any] = field(default_factory=dict)
    dt: str | None = None
    rate: float | None = None
    times: str | None = None
    start: str | None = None
    sparse: bool = False
    overwrite: bool = False
    durable: bool = False
    allow_external: bool = False
    untrusted: bool = False


def write_operator(request: OperatorRequest) -> dict[str, Any]:
    """Compute the matrices and write them; returns a report of plain values.

    Raises TrajcliError with every fault found; OUT is then as it was before.
    """
    files = Files(request.allow_external, request.untrusted)
    check = Gathering()
    try:
        mode = check.attempt(lambda: make_mode(request.mode, **request.options))
        check.attempt(lambda: refuse_output(request.out, request.overwrite))
        check.attempt(lambda: _require_start(request.start))
        check.attempt(lambda: require_counts(horizon=request.horizon))
        steps = check.attempt(lambda: find_dt(files, request.dt, request.rate, request.times, ()))
        check.attempt(lambda: refuse_input(request.out, files.paths()))
        check.raise_if_any()
        assert mode is not None
        assert steps is not None
        dt, times, source, names = steps
        found = operator_of(
            mode,
            request.horizon,
            dt,
            times,
            recorded=request.start == "first",
            sparse=request.sparse,
            names={"actions": "--horizon", **names},
        )
        dt_source = without_folders(source, files.paths())
    finally:
        files.close()
    attributes = {
        "mode": found.mode,
        **found.options,
        "dt_source": dt_source,
        "row_order": ",".join(PARTS),
        "trajcli_version": __version__,
    }
    schema = _schema(found, attributes)
    output = open_output(request.out, schema, request.overwrite, request.durable)
    with discarding(output):
        output.finish()
    return {
        "out": str(request.out),
        "mode": found.mode,
        "options": found.options,
        "horizon": request.horizon,
        "rows": len(found.time),
        "dt_source": source,
        "sparse": request.sparse,
        "matrices": {name: list(matrix.shape) for name, matrix in found.matrices().items()},
        "nonzero": {name: _nonzero(matrix) for name, matrix in found.matrices().items()},
        "bytes_written": schema.nbytes,
    }


def _schema(found: Operator, attributes: Mapping[str, Any]) -> Schema:
    """The matrices and the time of the rows; a sparse one is the four arrays that SciPy stores."""
    variables = [time_variable(found.time.shape, found.time)]
    for name, matrix in found.matrices().items():
        label = {"long_name": _LONG_NAMES[name]}
        if not isinstance(matrix, Csr):
            variables.append(_variable(name, ("output", _COLUMNS[name]), matrix, label))
            continue
        label["format"] = "csr"
        for part, dim, values in (
            ("data", f"{name}_entry", matrix.data),
            ("indices", f"{name}_entry", matrix.indices),
            ("indptr", f"{name}_row", matrix.indptr),
            ("shape", "matrix_axis", np.asarray(matrix.shape)),
        ):
            variables.append(_variable(f"{name}_{part}", (dim,), values, label))
    sizes: dict[str, int] = {}
    for variable in variables:
        sizes |= dict(zip(variable.dims, variable.shape, strict=True))
    return Schema(sizes, variables, attributes)


def _variable(name: str, dims: tuple[str, ...], values: Any, label: Mapping[str, Any]) -> Variable:
    return Variable(name, dims, values.shape, values.dtype, label, values)


def _nonzero(matrix: Any) -> int:
    return len(matrix.data) if isinstance(matrix, Csr) else int(np.count_nonzero(matrix))


def _require_start(start: str | None) -> None:
    if start not in (None, "first"):
        raise UsageError(
            Fault(
                "a matrix multiplies any start state",
                "--start",
                "first (the actions are a recording), or nothing",
                repr(start),
            )
        )
