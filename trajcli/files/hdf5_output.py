"""HDF5 outputs: h5py lays the file out, and the values are written in their places.

Each variable is one dataset with dimension scales or, where trajectories differ in length, a
dataset in the group of each trajectory. The datasets of the trajectories of one length lie one
after the other in the file, so that a block of them is one write.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import h5py
import numpy as np

from trajcli.errors import OutputError
from trajcli.files.arrays import text_of
from trajcli.files.atomic_output import reserve
from trajcli.files.description import Variable
from trajcli.files.outputs import Output

_GROUP_BYTES = 4096
"""About what HDF5 itself needs for a group of five datasets."""
_LARGEST_META_BLOCK = 1 << 20
SOURCES = "trajcli_sources"
"""The group in which a part lists what attributes sum up, for merge to sum up again."""
INPUTS = "inputs"
"""The dataset in which a part lists its input files."""
_CHUNK_BYTES = 4 << 20
"""The size of a chunk: whole trajectories, or rows of one that is larger."""


class Hdf5Output(Output):
    """An HDF5 file of contiguous datasets at known places; with a ``level``, of chunks that h5py
    shuffles and deflates at the end, from values that are kept in a file of their own until then.
    """

    def _is_packed(self, variable: Variable) -> bool:
        """Returns whether the values of a variable are compressed: those of trajectories are."""
        large = variable.by_trajectory and len(variable.dims) > 1
        return self.level is not None and large and self.description.nbytes_of(variable) > 0

    def _complete(self) -> None:
        """Compresses what was written, one dataset after the other, chunk by chunk, so that the
        bytes do not depend on blocks or parts; lists the inputs of a part."""
        if not self._packed and not self.inputs:
            return
        opened = h5py.h5f.open(os.fsencode(self._hidden.data), h5py.h5f.ACC_RDWR, _access())
        with h5py.File(opened) as file:
            values = self._hidden.path / "values"
            for (name, k), addresses in self._addresses.items():
                for n, at in enumerate(addresses.tolist() if name in self._packed else ()):
                    groups = self.description.groups
                    dataset = file[f"{groups[k].names[n]}/{name}" if groups else name]
                    rows = np.memmap(values, dataset.dtype, "r", at, dataset.shape)
                    for part in dataset.iter_chunks():
                        dataset[part] = rows[part]
            if self.inputs:
                file.create_dataset(INPUTS, data=self.inputs, dtype=h5py.string_dtype())

    def _prepare(self) -> None:
        description, self._packed, self._end = self.description, set[str](), 0
        groups = description.groups
        # values between which no description lies can be written at once
        count = sum(len(group.names) for group in groups)
        room = min(_GROUP_BYTES * count, _LARGEST_META_BLOCK) if groups else 2048
        created, access = h5py.h5p.create(h5py.h5p.FILE_CREATE), _access()
        created.set_obj_track_times(False)
        access.set_meta_block_size(room)
        path = os.fsencode(self._hidden.data)
        with h5py.File(h5py.h5f.create(path, h5py.h5f.ACC_EXCL, created, access)) as file:
            for name, value in sorted(description.attributes.items()):
                # names of files may hold bytes that are no text
                file.attrs[name] = text_of(value) if isinstance(value, str) else value
            whole = [v for v in description.variables if not (groups and v.by_trajectory)]
            made = {}
            for variable in whole:
                (dataset,) = self._make_datasets(file, variable, description.shape(variable))
                made[variable.name] = h5py.Dataset(dataset)
                made[variable.name].attrs.update(variable.attributes)
            dof = self._make_scales(file, whole, made)
            if groups:
                self._make_groups(file, dof)
            for name, texts in description.sources.items():
                data = list(map(text_of, texts))
                file.create_dataset(f"{SOURCES}/{name}", data=data, dtype=h5py.string_dtype())
        reserve(self._hidden.data, self._hidden.data.stat().st_size)
        if self._packed:
            values = self._hidden.path / "values"
            self._descriptors = dict.fromkeys(self._packed, self._open_file(values))
            reserve(values, self._end)

    def _make_datasets(
        self,
        file: Any,
        variable: Variable,
        shape: tuple[int, ...],
        group: int = 0,
        prefixes: Sequence[str] = ("",),
    ) -> list[Any]:
        """Makes a dataset for a variable, or one in the group of each trajectory of a length.

        Notes where their values lie, but of datasets in chunks, which have no place yet.
        """
        space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
        kind = h5py.h5t.py_create(variable.dtype, logical=True)
        nbytes = self.description.nbytes_of(variable, group)
        properties = self._properties(variable, group)
        links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        links.set_create_intermediate_group(True)
        datasets = [
            h5py.h5d.create(
                file.id, f"{prefix}{variable.name}".encode(), kind, space, properties, links
            )
            for prefix in prefixes
        ]
        addresses = [dataset.get_offset() for dataset in datasets]
        if nbytes == 0:
            addresses = [0] * len(addresses)
        elif self._is_packed(variable):
            self._packed.add(variable.name)
            size = nbytes // len(datasets)
            addresses = [self._end + n * size for n in range(len(datasets))]
            self._end += nbytes
        if None not in addresses:
            self._addresses[variable.name, group] = np.array(addresses, np.int64)
        return datasets

    def _properties(self, variable: Variable, group: int) -> Any:
        """Returns how the datasets of a variable are made: contiguous ones have their place in the
        file from now on, and are filled later."""
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if self._is_packed(variable):
            count, rows, *inner = self.description.shape(variable, group)
            entry = self.description.entry_bytes(variable, group)
            if entry > _CHUNK_BYTES:
                rows = max(1, _CHUNK_BYTES * rows // entry)
            count = max(1, min(count, _CHUNK_BYTES // entry))
            in_group = bool(self.description.groups)
            properties.set_chunk((rows, *inner) if in_group else (count, rows, *inner))
            properties.set_shuffle()
            properties.set_deflate(self.level)
        else:
            properties.set_layout(h5py.h5d.CONTIGUOUS)
            properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        properties.set_obj_track_times(False)
        return properties

    def _make_scales(
        self, file: Any, variables: Sequence[Variable], made: Mapping[str, Any]
    ) -> Any:
        """Makes a scale for each dimension of datasets and attaches it to them; returns the scale
        of the dofs."""
        sizes = self.description.sizes
        labels = {"dof": self.description.joint_names, "trajectory": self.description.names}
        used, dof = {"dof", *(dim for variable in variables for dim in variable.dims)}, None
        for dim in (dim for dim in sizes if dim in used):
            size, label = sizes[dim], dim
            if dim == "time":
                scale = made["time"]
            elif names := labels.get(dim):
                scale = file.create_dataset(dim, data=list(names), dtype=h5py.string_dtype())
            else:
                # netCDF's mark of a dimension without coordinates; no values are stored
                scale = file.create_dataset(dim, shape=(size,), dtype=">f4")
                label = f"This is a netCDF dimension but not a netCDF variable.{size:10d}"
            scale.make_scale(label)
            dof = scale if dim == "dof" else dof
            for variable in variables:
                for axis, name in enumerate(variable.dims):
                    if name == dim and variable.name != dim:
                        h5py.h5ds.attach_scale(made[variable.name].id, scale.id, axis)
        return dof

    def _make_groups(self, file: Any, dof: Any) -> None:
        """Makes a group for each trajectory, with its datasets and their scales, by HDF5's own
        functions: h5py's take three times as long, and there may be thousands of groups."""
        description = self.description
        names = [name for group in description.groups for name in group.names]
        links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
        links.set_create_intermediate_group(True)
        for name in names:
            try:
                made = h5py.h5g.create(file.id, name.encode(), links)
            except ValueError as error:
                raise OutputError(
                    "a group that cannot be made", where=name, found=str(error)
                ) from None
            if dof is not None:
                made.links.create_hard(b"dof", file.id, b"dof")
        variables = [v for v in description.variables if v.by_trajectory]
        variables.sort(key=lambda variable: variable.name != "time")  # the scale of the others
        for k, group in enumerate(description.groups):
            scales = {} if dof is None else {"dof": [np.array([dof.ref], h5py.ref_dtype)]}
            prefixes = [f"{name}/" for name in group.names]
            for variable in variables:
                shape = description.shape(variable, k)[1:]
                datasets = self._make_datasets(file, variable, shape, k, prefixes)
                _label_datasets(variable, datasets, scales)
                if variable.name == "time":
                    scales["row"] = scales["time"] = [
                        np.array([h5py.h5r.create(one, b".", h5py.h5r.OBJECT)], h5py.ref_dtype)
                        for one in datasets
                    ]


def _access() -> Any:
    """Returns how files are opened: without buffers for values, as HDF5 does not report what fails
    when a dataset is closed."""
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_EARLIEST, h5py.h5f.LIBVER_LATEST)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    access.set_file_locking(False, True)
    access.set_sieve_buf_size(0)
    access.set_cache(0, 0, 0, 0.75)
    return access


def _label_datasets(
    variable: Variable, datasets: Sequence[Any], scales: Mapping[str, Sequence[Any]]
) -> None:
    """Writes the units of the datasets of a variable and the scales of their axes.

    scales: by dimension, references [1] to one scale for all, or to one for each. h5ds.attach_scale
    would also list every dataset at the scale of the dofs, which takes longer with each of them;
    readers need only this direction.
    """
    scalar, axes = h5py.h5s.create(h5py.h5s.SCALAR), variable.dims[1:]
    text = h5py.h5t.py_create(h5py.string_dtype(), logical=True)
    units = np.array(str(variable.attributes.get("units")), h5py.string_dtype())
    references = h5py.h5t.vlen_create(h5py.h5t.STD_REF_OBJ)
    space = h5py.h5s.create_simple((max(len(axes), 1),))
    lists = np.empty(len(axes), h5py.vlen_dtype(h5py.ref_dtype))
    for i, dataset in enumerate(datasets):
        if "units" in variable.attributes:
            h5py.h5a.create(dataset, b"units", text, scalar).write(units)
        if variable.name == "time":
            h5py.h5ds.set_scale(dataset, b"time")
        elif axes and "row" in scales:
            for axis, dim in enumerate(axes):
                lists[axis] = scales[dim][i % len(scales[dim])]
            h5py.h5a.create(dataset, b"DIMENSION_LIST", references, space).write(lists)
