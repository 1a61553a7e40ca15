"""Trajectories in memory to a file and back: what ``Trajectory.save`` and ``trajcli.load`` do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import InputError
from trajcli.files.arrays import candidates
from trajcli.files.description import Variable, describe_output, row_variable, time_variable
from trajcli.files.opening import open_arrays
from trajcli.files.outputs import Output
from trajcli.files.quantities import QUANTITIES, SMOOTHING
from trajcli.files.writing import write

Arrays = Mapping[str, Any]


def save(
    path: Path, outputs: Arrays, time: Any, attributes: Mapping[str, Any], overwrite: bool
) -> None:
    """Writes outputs [B, T, D] and their time [T] or [B, T] as a run from the shell would."""
    batch, rows, dofs = next(iter(outputs.values())).shape
    variables = [row_variable(name, values.dtype.name) for name, values in outputs.items()]
    variables.append(time_variable(shared=time.ndim < 2))
    # what was chosen for each dof of each trajectory [B, D] is an array in the file
    tables = {name: attributes[name] for name in SMOOTHING if np.ndim(attributes.get(name, 0)) == 2}
    attributes = {name: value for name, value in attributes.items() if name not in tables}
    variables += [
        Variable(name, ("trajectory", "dof"), values.dtype, SMOOTHING[name])
        for name, values in tables.items()
    ]
    description = describe_output({rows: range(batch)}, {"dof": dofs}, variables, attributes)

    def blocks(output: Output) -> Iterator[int]:
        yield output.append({**outputs, **tables}, np.reshape(time, (-1, rows)))

    write(path, description, blocks, overwrite=overwrite)


def load(path: Path) -> tuple[dict[str, Any], Any, Mapping[str, Any]]:
    """Returns the outputs [B, T, D], their time and the attributes of a file that trajcli wrote.

    Raises InputError if the file holds no output, or no time.
    """
    with open_arrays(path) as file:
        stored = {name: file.get(name) for name in QUANTITIES}
        outputs = {
            name: np.array(array.require_numeric().read())
            for name, array in stored.items()
            if array is not None and array.ndim == 3
        }
        time = file.get("time")
        if not outputs or time is None:
            raise InputError(
                "not one array of trajectories for each output",
                where=str(path),
                expected=f"{', '.join(QUANTITIES)} [B, T, D] and time, as integrate writes them",
                found=candidates(file.names()[:200], file.get),
                hint="h5py reads groups of trajectories one by one",
            )
        tables = {name: array.read() for name in SMOOTHING if (array := file.get(name)) is not None}
        return outputs, np.array(time.read()), {**file.attributes(), **tables}
