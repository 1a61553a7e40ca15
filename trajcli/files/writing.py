"""The only way to an output file: refuses what cannot be written, then writes all or nothing."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, OutputError, Stopped
from trajcli.files.atomic_output import refuse_path
from trajcli.files.catalogue import Numbers, candidates, python_line
from trajcli.files.file_bytes import SourceFiles
from trajcli.files.opening import open_arrays
from trajcli.files.outputs import (
    Description,
    NpyOutput,
    NpzOutput,
    Output,
    Span,
    Variable,
    describe_output,
    row_variable,
    time_variable,
)
from trajcli.files.quantities import QUANTITIES, SMOOTHING
from trajcli.files.source import relative_path
from trajcli.system import hold_signals

# Endings that export writes, and those of outputs with their families.
_EXPORTED = (".parquet", ".rrd", ".tum", ".yaml", ".yml", ".json")
_FAMILIES = {".h5": "hdf5", ".hdf5": "hdf5", ".npz": "npz", ".npy": "npy"}


def output_family(path: Path) -> str:
    """Tells "hdf5", "npz" or "npy" by OUT's name; raises OutputError for other names."""
    if not path.name:
        raise OutputError("not the name of a file", where=path, expected="such as out.h5")
    family = _FAMILIES.get(path.suffix.lower())
    if family is None:
        raise OutputError(
            "unknown kind of output",
            where=path,
            expected="OUT.h5, OUT.npz, or OUT.npy with one quantity",
            found=path.suffix or "no ending",
            hint=f"save({str(path.with_suffix('.h5'))!r}), or to_xarray() for other kinds",
            shell=conversion_hint(path),
        )
    return family


def conversion_hint(path: Path) -> str:
    """Writes a hint at how to get a file of a kind that is not an output: by way of an output."""
    kind, output = path.suffix.lower(), path.with_suffix(".h5")
    picture = kind in (".png", ".svg", ".pdf")
    # any other kind can be made of a table
    last = path if picture or kind in _EXPORTED else path.with_suffix(".csv")
    line = shlex.join(["trajcli", "plot" if picture else "export", str(output), "-o", str(last)])
    if kind == ".zarr":
        line = python_line("import xarray; xarray.open_dataset(%s).to_zarr(%s)", output, path)
    return f"-o {shlex.quote(str(output))}, and then: {line}"


def refuse_output(path: Path, overwrite: bool) -> None:
    """Raises OutputError where OUT cannot or must not be written."""
    if str(path) == "-":
        hint, found = "-o out.h5, and then: trajcli export out.h5 -o -", "standard output"
        raise OutputError("not a file", where="-", expected="a name", found=found, hint=hint)
    refuse_path(path, overwrite)
    output_family(path)


def refuse_form(
    path: Path, description: Description, compress: int | None = None, *, has_write: bool = False
) -> None:
    """Raises OutputError where OUT's form cannot hold what is described, or not compressed."""
    family, faults = output_family(path), []
    if compress is not None and (family != "hdf5" or not 1 <= compress <= 9):
        what, expected = "cannot be compressed", "OUT.h5 or OUT.hdf5, and a level from 1 to 9"
        found = f"{path.name}, level {compress}"
        faults.append(Fault(what, where="--compress", expected=expected, found=found))
    if description.groups and family == "npy":
        what = "trajectories of unequal length are not one array"
        faults.append(Fault(what, where=str(path), expected="OUT.h5 or OUT.npz", found=path.suffix))
    arrays = [variable.name for variable in description.streamed if variable.name != "time"]
    if family == "npy" and len(arrays) != 1:
        what, found, hint, shell = "a .npy file holds one array", ", ".join(arrays), "", ""
        for first in arrays[:1]:
            output = str(path.with_suffix(".h5"))
            line = shlex.join(["trajcli", "export", f"{output}:{first}", "-o", str(path)])
            shell = f"-o {shlex.quote(output)}, and then: {line}"
            shell = f"--write {first} writes one" if has_write else shell
            hint = f"numpy.save(path, trajectory.{first}) writes one"
        faults.append(
            Fault(what, where=path, expected="OUT.h5", found=found, hint=hint, shell=shell)
        )
    # each trajectory becomes an HDF5 group, and "dof" is taken by the names of the dofs
    names = Counter(name for group in description.groups for name in group.names)
    for name, count in names.items():
        if name.rpartition("/")[0] in names or name in ("", "dof") or count > 1:
            faults.append(Fault("a trajectory within another, or without a name", where=name))
    if faults:
        raise OutputError(*faults[:5])


def write(
    out: Path,
    description: Description,
    fill: Callable[[Output], object],
    *,
    overwrite: bool = False,
    compress: int | None = None,
    sources: SourceFiles | None = None,
) -> list[str]:
    """Writes an output: reserves its space in a hidden file, fills it, and renames it.

    fill: called with the open output, to write all values to it. compress: the level of deflate, 1
    to 9, for HDF5. sources: the files that are read, which have to be the same when all is written.
    Returns remarks about the complete output. After any error, also of ``fill``, OUT is what it
    was.
    """
    # what can be refused is refused before a hidden folder appears
    refuse_form(out, description, compress)
    family = output_family(out)
    output: Output
    if family == "hdf5":
        from trajcli.files.hdf5_output import Hdf5Output  # late, as h5py takes 0.1 s

        output = Hdf5Output(out, description, compress)
    else:
        output = (NpzOutput if family == "npz" else NpyOutput)(out, description)
    output.begin(overwrite)
    # signals are held: the loop over blocks answers them between two blocks
    with hold_signals(), output:
        fill(output)
        # a part of a run, in OUT.parts, lists its inputs by paths relative to the folder of OUT
        if sources is not None and description.sources:
            folder = os.path.realpath(out.parent.parent)
            contents = (
                (relative_path(path, folder), text) for path, text in sources.hash_contents()
            )
            output.inputs = sorted(map(json.dumps, contents))
        # a change after the first read would mix two states of a file in one output
        if sources is not None:
            sources.require_unchanged()
        output.finish()
    return output.notes


def stop_error(out: Path, reason: str, done: int, total: int) -> Stopped:
    found, hint = f"{done} of {total} trajectories done", "run the same command again"
    return Stopped(f"stopped by {reason}", where=str(out), found=found, hint=hint)


def save(
    path: Path,
    outputs: Mapping[str, Any],
    time: Any,
    attributes: Mapping[str, Any],
    overwrite: bool,
    lengths: Numbers | None = None,
) -> None:
    """Writes outputs [B, T, D] of ``lengths`` [B] and their time as a run from the shell would."""
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
    numbers: dict[int, Numbers] = {rows: np.arange(batch)}
    if lengths is not None:
        numbers = {int(n): np.flatnonzero(lengths == n) for n in np.unique(lengths)}
    names = [f"trajectory_{number}" for number in range(batch)] if len(numbers) > 1 else None
    description = describe_output(numbers, {"dof": dofs}, variables, attributes, names=names)
    times = np.reshape(time, (-1, rows))  # one row where all trajectories share their times

    def fill(output: Output) -> None:
        for group, (count, members) in enumerate(sorted(numbers.items())):
            arrays = {name: values[members, :count] for name, values in outputs.items()}
            arrays["time"] = times[members if len(times) > 1 else [0], :count]
            arrays |= {name: values[members] for name, values in tables.items()}
            output.write(Span(begin=0, end=len(members), group=group), arrays)

    write(path, description, fill, overwrite=overwrite)


def load(path: Path) -> list[tuple[dict[str, Any], Any, dict[str, Any]]]:
    """Reads a file that trajcli wrote: outputs [B, T, D], their time and the attributes, of all
    trajectories together or, where they differ in length, of each."""
    with open_arrays(path) as file:
        names, attributes = file.names(), dict(file.attributes())
        prefixes = [name.removesuffix("time") for name in names if name.endswith("/time")]
        if file.get("time") is not None:
            prefixes = [""]
        trajectories = []
        for prefix in prefixes:
            time = file.get(f"{prefix}time")
            assert time is not None  # by which the group was found
            outputs, tables = dict[str, Any](), dict[str, Any]()
            # results of smoothing are [B, D]; in a group, arrays lack the first axis
            for arrays, kinds, ndim in ((outputs, QUANTITIES, 3), (tables, (*SMOOTHING,), 2)):
                for name in kinds:
                    array = file.get(prefix + name)
                    if array is not None and array.ndim == ndim - bool(prefix):
                        values = np.array(array.require_numeric().read())
                        arrays[name] = values[None] if prefix else values
            times = np.array(time.require_numeric().read())
            trajectories.append((outputs, times, {**attributes, **tables}))
        if not trajectories or not all(outputs for outputs, *_ in trajectories):
            raise InputError(
                "no trajectories with their times",
                where=str(path),
                expected=f"{', '.join(QUANTITIES)} [B, T, D] and time, as integrate writes them",
                found=candidates(names[:200], file.get),
                hint="differentiate and resample make trajectories of other arrays",
            )
        return trajectories
