"""Arrays of one group side by side, as the dofs of one trajectory: obs/eef_pos,eef_quat."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.errors import InputError, describe
from trajcli.files._layouts import Layout
from trajcli.files.catalogue import Catalogue, Dataset, PartReader
from trajcli.files.companions import Companions
from trajcli.files.conversion import as_batch, convert_values, read_unit
from trajcli.files.dofs import JOINED, named_rotations
from trajcli.files.source import Source


def shorten_source(source: Source) -> Source:
    """Returns a SOURCE of several arrays with their group said once."""
    first, *others = str(source.dataset).split(",")
    folder = first[: first.rfind("/") + 1]
    named = ",".join((first, *(part.strip().removeprefix(folder) for part in others)))
    return source._replace(dataset=named)


def match_arrays(file: Catalogue, name: str) -> list[str]:
    """Returns the paths that a pattern means: of demo_*/a,b those of demo_*/a, each with b."""
    head, comma, others = name.partition(",")
    if not comma or "*" not in head or file.get(name) is not None:
        return [name] if comma else file.match(name)
    return [f"{path},{others}" for path in file.match(head)]


def find_array(file: Catalogue, path: str, layout: Layout | None = None) -> Dataset:
    """Returns the array at a path, or the dofs of several arrays of a group, folder/a,b. Raises
    InputError for arrays of unequal rows."""
    if "," not in path or file.get(path) is not None:
        return file.require(path)
    parts, dofs, units = list[Dataset](), list[str](), list[str]()
    folder = path[: path.partition(",")[0].rfind("/") + 1]
    for name in path.removeprefix(folder).split(","):
        known = file.get(folder + name) or file.get(name)
        part = (known or file.require(folder + name)).require_numeric()
        if part.ndim == 1 or (parts and part.ndim < parts[0].ndim):  # a number in a row
            wide = convert_values(part, lambda rows: rows[..., None])
            part = replace(wide, shape=(*part.shape, 1))
        names = _dof_names(file, folder, part, name, layout)
        parts.append(part)
        if part.shape[:-1] != parts[0].shape[:-1]:
            expected, found = f"rows as in {describe(parts[0].shape)}", describe(part.shape)
            what, where = "arrays of other rows", f"{part.where} and {parts[0].where}"
            hint = f"{file.shell_name(folder + name)} reads it alone"
            raise InputError(what, where=where, expected=expected, found=found, hint=hint)
        unit = read_unit(part).split(",")
        units += unit if len(unit) == len(names) else [unit[0]] * len(names)
        same = set(names) & set(dofs)
        dofs += [f"{name}.{dof}" for dof in names] if same else names
    about: dict[str, Any] = {"joint_names": dofs, JOINED: True}
    if any(units):
        about["units"] = ",".join(unit or "-" for unit in units)
    shape, dtype = (*parts[0].shape[:-1], len(dofs)), np.result_type(*(x.dtype for x in parts))

    def read(*rows: int) -> Any:  # and of batches columns
        reads = (x.read_part if rows[2:] else x.read_rows for x in parts)
        return np.concatenate([read_part(*rows) for read_part in reads], -1)

    reader = PartReader(read, shape[1]) if len(shape) > 2 else read
    remarks = [remark for part in parts for remark in part.remarks]
    return Dataset(file.place(path), shape, dtype, reader, about, "side by side", remarks)


def _dof_names(
    file: Catalogue, folder: str, part: Dataset, name: str, layout: Layout | None
) -> Sequence[str]:
    """Returns the names of the dofs of a part: its own, or else its name with their numbers. Those
    of rotations tell the form by which the part is read alone."""
    beside, count = Companions(file, folder.rstrip("/"), part, None, None), part.shape[-1]
    own, last = beside.dof_names or [], name.rpartition("/")[2]
    if layout is not None:
        own = own or layout.family.dof_names(layout, name) or []
    own = list(own) if len(own) == count else []
    numbered = [last] if count == 1 else [f"{last}_{k}" for k in range(count)]
    family, order = layout.name if layout else file.family, beside.order_of_quaternions
    with suppress(InputError):  # raised of the whole where the order is not known
        for turn in named_rotations(last, own, count, family, order, part.where, as_batch(part)):
            if turn.width != 4:
                return numbered
            own = own or numbered
            for dof, axis in zip(turn.dofs, turn.form, strict=True):
                own[dof] = f"{turn.name}.q{axis}"
    return own or numbered
