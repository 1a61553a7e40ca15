"""Joins arrays of one group side by side, as the dofs of a trajectory: obs/eef_pos,eef_quat."""

from __future__ import annotations

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


def match_arrays(file: Catalogue, name: str) -> list[str]:
    """Lists the paths that a pattern means: for demo_*/a,b those of demo_*/a, each with b."""
    head, comma, others = name.partition(",")
    if not comma or "*" not in head or file.get(name) is not None:
        return [name] if comma else file.match(name)
    return [f"{path},{others}" for path in file.match(head)]


def find_array(file: Catalogue, path: str, layout: Layout | None = None) -> Dataset:
    """Finds the array at a path, or joins the dofs of several arrays of a group, folder/a,b."""
    if "," not in path or file.get(path) is not None:
        return file.require(path)
    parts, dofs, units = list[Dataset](), list[str](), list[str]()
    folder = path[: path.partition(",")[0].rfind("/") + 1]
    for name in path.removeprefix(folder).split(","):
        # a name lies in the group of the first, or is a path of its own
        known = file.get(folder + name) or file.get(name)
        part = (known or file.require(folder + name)).require_numeric()
        # one number in each row, such as the width of a gripper, is a dof
        if part.ndim == 1 or (parts and part.ndim < parts[0].ndim):
            wide = convert_values(part, lambda rows: rows[..., None])
            part = replace(wide, shape=(*part.shape, 1))
        # dofs have the names that the file gives, or the name of the part and a number
        companions, count = Companions(file, folder.rstrip("/"), part, None, None), part.shape[-1]
        names, last = list(companions.dof_names or []), name.rpartition("/")[2]
        if layout is not None:
            names = names or layout.family.dof_names(layout, name) or []
        names = names if len(names) == count else []
        numbered = [last] if count == 1 else [f"{last}_{k}" for k in range(count)]
        family, order = layout.name if layout else file.family, companions.order_of_quaternions
        with suppress(InputError):  # an unknown order is reported where the joined array is used
            batch = as_batch(part)
            for turn in named_rotations(last, names, count, family, order, part.where, batch):
                if turn.width != 4:
                    names = numbered
                    break
                # names of components tell a quaternion among the dofs of other parts
                names = names or numbered
                for dof, axis in zip(turn.dofs, turn.form, strict=True):
                    names[dof] = f"{turn.name}.q{axis}"
        names = names or numbered
        parts.append(part)
        if part.shape[:-1] != parts[0].shape[:-1]:
            expected, found = f"rows as in {describe(parts[0].shape)}", describe(part.shape)
            what, where = "arrays that differ in rows", f"{part.where} and {parts[0].where}"
            hint = f"{file.shell_name(folder + name)} reads it alone"
            raise InputError(what, where=where, expected=expected, found=found, hint=hint)
        unit = read_unit(part).split(",")
        units += unit if len(unit) == len(names) else [unit[0]] * len(names)
        # two grippers may each have a dof of the same name
        repeated = set(names) & set(dofs)
        dofs += [f"{name}.{dof}" for dof in names] if repeated else names
    # dofs without a unit are "-" among those with one, as outputs write them
    about: dict[str, Any] = {"joint_names": dofs, JOINED: True}
    if any(units):
        about["units"] = ",".join(unit or "-" for unit in units)
    shape, dtype = (*parts[0].shape[:-1], len(dofs)), np.result_type(*(x.dtype for x in parts))

    def read(*span: int) -> Any:
        blocks = [x.read_part(*span) if span[2:] else x.read_rows(*span) for x in parts]
        return np.concatenate(blocks, -1)

    reader = PartReader(read, shape[1]) if len(shape) > 2 else read
    remarks = [remark for part in parts for remark in part.remarks]
    return Dataset(file.place(path), shape, dtype, reader, about, "side by side", remarks)
