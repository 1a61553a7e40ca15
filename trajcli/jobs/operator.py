"""A mode's matrices, to a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from trajcli import __version__, operators
from trajcli.errors import FaultCollector
from trajcli.files.opening import Files
from trajcli.files.outputs import open_output
from trajcli.files.refusals import refuse_input, refuse_output
from trajcli.files.schema import Schema, Variable, time_variable
from trajcli.files.stored_time import time_from_options
from trajcli.jobs.request import relative_texts
from trajcli.jobs.segments import in_memory, require_time
from trajcli.modes import PARTS
from trajcli.operators import Csr, Operator

_COLUMNS = {
    "A": ("action", "actions"),
    "C": ("start_part", "start state"),
    "G": ("goal_part", "goal state"),
}
"""Of each matrix, the dimension of its columns, and what it multiplies."""


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
    check, stated = FaultCollector(), (request.dt, request.rate, request.times)
    with Files(request.allow_external, request.untrusted) as files:
        time, *_ = check.attempt(
            lambda: require_time(time_from_options(files, *stated), "dt"),
            lambda: refuse_output(request.out, request.overwrite),
            lambda: refuse_input(request.out, files.paths()),
        )
        check.raise_if_any()
        dt, times = (
            None if values is None else in_memory(values) for values in (time.dt, time.stamps)
        )
        start: Any = request.start
        operator = operators.operator(
            request.horizon,
            dt,
            request.mode,
            times=times,
            start=start,
            sparse=request.sparse,
            **request.options,
        )
        paths = files.paths()
    attributes = {
        "mode": operator.mode,
        **operator.options,
        "dt_source": time.source,
        "row_order": ",".join(PARTS),
        "trajcli_version": __version__,
    }
    schema = _schema(operator, relative_texts(attributes, paths, request.out))
    with open_output(request.out, schema, request.overwrite, request.durable) as output:
        output.finish()
    matrices = operator.matrices()
    return {
        "out": str(request.out),
        "mode": operator.mode,
        "options": operator.options,
        "horizon": request.horizon,
        "rows": len(operator.time),
        "dt_source": time.source,
        "sparse": request.sparse,
        "matrices": {name: list(matrix.shape) for name, matrix in matrices.items()},
        "nonzero": {
            name: len(matrix.data) if isinstance(matrix, Csr) else int(np.count_nonzero(matrix))
            for name, matrix in matrices.items()
        },
        "notes": output.notes,
        "bytes_written": schema.nbytes,
    }


def _schema(operator: Operator, attributes: Mapping[str, Any]) -> Schema:
    """The matrices and the time of the rows; a sparse one is the four arrays that SciPy stores."""
    variables = [time_variable(operator.time.shape, operator.time)]
    for name, matrix in operator.matrices().items():
        columns, role = _COLUMNS[name]
        label = {"long_name": f"{role} to position, velocity, acceleration, jerk of all rows"}
        arrays: dict[str, tuple[tuple[str, ...], Any]] = {name: (("output", columns), matrix)}
        if isinstance(matrix, Csr):
            label["format"] = "csr"
            arrays = {
                f"{name}_data": ((f"{name}_entry",), matrix.data),
                f"{name}_indices": ((f"{name}_entry",), matrix.indices),
                f"{name}_indptr": ((f"{name}_row",), matrix.indptr),
                f"{name}_shape": (("matrix_axis",), np.asarray(matrix.shape)),
            }
        variables += [
            Variable(called, dims, values.shape, values.dtype, label, values)
            for called, (dims, values) in arrays.items()
        ]
    dims = dict(pair for v in variables for pair in zip(v.dims, v.shape, strict=True))
    return Schema(dims, variables, attributes)
