"""Trajectories as arrays for other programs: .npy, .npz and HDF5."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import IO

import numpy as np

from trajcli.errors import Fault, UsageError
from trajcli.files.atomic_output import PROVENANCE
from trajcli.files.outputs import discarding, open_output
from trajcli.files.schema import Group, Schema, Variable, time_variable, unequal_schema
from trajcli.views.export import Selection
from trajcli.views.statistics import Progress


def write_npy(chosen: Selection, path: Path, on_progress: Progress) -> None:
    """One array [n, rows, dofs]; raises UsageError where there are several, or of other lengths."""
    if len(chosen.arrays) > 1:
        first = chosen.batch.first
        hint = f"name one: {first.file.path}:{f'{first.group}/{chosen.arrays[0]}'.lstrip('/')}"
        found = ", ".join(chosen.arrays)
        raise UsageError(Fault("a .npy holds one array", _where(chosen), "one", found, hint))
    with open(path, "wb") as file:
        _write_array(file, chosen, chosen.arrays[0], _rows(chosen), on_progress)


def write_npz(chosen: Selection, path: Path, on_progress: Progress) -> None:
    """Every array [n, rows, dofs] and the times [n, rows], one after the other, each read once.

    Raises UsageError where trajectories differ in length.
    """
    rows = _rows(chosen)
    names = [*chosen.arrays, *(["time"] if chosen.timed else [])]
    units = _units(chosen) | ({"time": "s"} if chosen.timed else {})
    about = {
        "attributes": {"source": chosen.batch.first.file.path.name},
        "units": {name: unit for name, unit in units.items() if unit},
        **({"dof": chosen.dof_names} if chosen.batch.first.joint_names else {}),
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for place, name in enumerate(names):

            def progress(done: int, total: int, place: int = place) -> None:
                on_progress(place * total + done, len(names) * total)

            # a ZipInfo is dated 1980: the same input gives the same bytes
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                _write_array(member, chosen, name, rows, progress)
        archive.writestr(zipfile.ZipInfo(PROVENANCE), json.dumps(about, indent=2))


def write_hdf5(chosen: Selection, out: Path, overwrite: bool, on_progress: Progress) -> None:
    """As integrate writes it: packed, or in groups where trajectories differ in length."""
    first = chosen.batch.first
    lengths = np.concatenate([np.full(len(block.numbers), block.rows) for block in chosen.blocks])
    rows = np.unique(lengths).tolist()
    clocks = [one.time for block in chosen.blocks for one, *_ in block.parts]
    steps = {None if clock is None else clock.uniform for clock in clocks}
    step = steps.pop() if len(steps) == 1 else None
    along = "time" if chosen.timed and (step or chosen.count == 1) else "row"
    shape = chosen.count, rows[-1], len(chosen.dofs)
    dims = ("trajectory", along, "dof")
    variables = [
        Variable(name, dims, shape, chosen.dtype(name), {"units": unit} if unit else {})
        for name, unit in _units(chosen).items()
    ]
    if chosen.timed:
        variables.append(time_variable(shape[1:2] if along == "time" else shape[:2]))
    attributes = {"source": first.file.path.name} | ({"dt": step} if step else {})
    joints = chosen.dof_names if first.joint_names else None
    schema = Schema(dict(zip(dims, shape, strict=True)), variables, attributes, joints)
    names = [chosen.batch.name(number) for number in chosen.numbers]
    if len(rows) > 1:
        names = [f"trajectory_{name}" if name.isdecimal() else name for name in names]
        places = [np.flatnonzero(lengths == length) for length in rows]
        groups = [Group(length, [names[n] for n in which], which)
                  for length, which in zip(rows, places, strict=True)]  # fmt: skip
        schema = unequal_schema(schema, groups, pack=False)
    elif not all(map(str.isdecimal, names)):
        schema = replace(schema, trajectory_names=names)
    written = dict.fromkeys(rows, 0)
    with discarding(open_output(out, schema, overwrite, durable=False)) as output:
        for block in chosen.blocks:
            count, place, group = len(block.numbers), written[block.rows], rows.index(block.rows)
            for name in chosen.arrays:
                output.write(name, place, chosen.values(block, name), group)
            if chosen.timed:
                output.write_time(place, count, chosen.times(block), group)
            written[block.rows] += count
            on_progress(sum(written.values()), chosen.count)
        output.finish()


def _units(chosen: Selection) -> dict[str, str | None]:
    return {name: chosen.batch.first.unit(name) for name in chosen.arrays}


def _where(chosen: Selection) -> str:
    return str(chosen.batch.first.file.path)


def _rows(chosen: Selection) -> int:
    """The rows of all trajectories; raises UsageError where they differ."""
    lengths = sorted({block.rows for block in chosen.blocks})
    if len(lengths) > 1:
        found = f"{lengths[0]} to {lengths[-1]} rows"
        hint = ".h5, .csv and .parquet hold them all; --rows takes those that all have"
        what = "trajectories of different length in one array"
        raise UsageError(Fault(what, _where(chosen), "equal lengths", found, hint))
    return lengths[0]


def _write_array(
    file: IO[bytes], chosen: Selection, name: str, rows: int, on_progress: Progress
) -> None:
    """An array of all trajectories as .npy, or their times."""
    timed = name == "time" and name not in chosen.arrays
    kind = np.dtype(np.float64) if timed else chosen.dtype(name)
    shape = (chosen.count, rows) if timed else (chosen.count, rows, len(chosen.dofs))
    head = io.BytesIO()
    layout = {"descr": kind.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(head, layout)
    file.write(head.getvalue())
    done = 0
    for block in chosen.blocks:
        values = chosen.times(block) if timed else chosen.values(block, name)
        file.write(np.ascontiguousarray(values, kind).reshape(-1).view(np.uint8).data)
        done += len(block.numbers)
        on_progress(done, chosen.count)
