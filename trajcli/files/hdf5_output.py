"""HDF5 outputs: h5py lays the file out, and the values are written at their addresses.

Each variable is one dataset with dimension scales or, where trajectories differ in length, a
dataset in the group of each trajectory. The datasets of the trajectories of one length lie one
after the other in the file, so that a block of them is one write.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import h5py
import numpy as np

from trajcli.errors import OutputError
from trajcli.files.atomic_output import reserve
from trajcli.files.catalogue import decode_text
from trajcli.files.outputs import Output, Variable
from trajcli.memory import CHUNK_BYTES

# About what HDF5 itself needs for a group of five datasets.
_GROUP_BYTES = 4096
_LARGEST_META_BLOCK = 1 << 20
SOURCES = "trajcli_sources"
"""The group in which a part lists what attributes sum up, for merge to sum up again."""
INPUTS = "inputs"
"""The dataset in which a part lists its input files."""


class Hdf5Output(Output):
    """An HDF5 file of contiguous datasets at known addresses; with a ``level``, of chunks that h5py
    shuffles and deflates at the end, from values that are kept in a file of their own until then.
    """

    def _complete(self) -> None:
        # one dataset after the other, chunk by chunk: the bytes do not depend on blocks or parts
        if not self._packed and not self.inputs:
            return
        groups = self.description.groups
        opened = h5py.h5f.open(
            os.fsencode(self._hidden.data), h5py.h5f.ACC_RDWR, _access(bool(groups))
        )
        with h5py.File(opened) as file:
            values = self._hidden.path / "values"
            for (name, k), addresses in self._addresses.items():
                for n, address in enumerate(addresses.tolist() if name in self._packed else ()):
                    dataset = file[f"{groups[k].names[n]}/{name}" if groups else name]
                    rows = np.memmap(values, dataset.dtype, "r", address, dataset.shape)
                    for chunk in dataset.iter_chunks():
                        dataset[chunk] = rows[chunk]
            if self.inputs:
                file.create_dataset(INPUTS, data=self.inputs, dtype=h5py.string_dtype())

    def _prepare(self) -> None:
        description, self._packed, self._end = self.description, set[str](), 0
        groups = description.groups
        # Metadata between values would break one write into many. A block of it as large as all
        # groups need keeps it in front of the values; 2 KiB do for the datasets of one array.
        count = sum(len(group.names) for group in groups)
        room = min(_GROUP_BYTES * count, _LARGEST_META_BLOCK) if groups else 2048
        access = _access(bool(groups))
        access.set_meta_block_size(room)
        created = _untimed(h5py.h5p.FILE_CREATE)
        path = os.fsencode(self._hidden.data)
        with h5py.File(h5py.h5f.create(path, h5py.h5f.ACC_EXCL, created, access)) as file:
            for name, value in sorted(description.attributes.items()):
                # names of files may hold bytes that are no text, and netCDF has no booleans
                text, yes = isinstance(value, str), isinstance(value, bool)
                file.attrs[name] = decode_text(value) if text else int(value) if yes else value
            shared = [v for v in description.variables if not (groups and v.has_trajectory_axis)]
            datasets = {}
            for variable in shared:
                (dataset,) = self._make_datasets([file.id], variable)
                datasets[variable.name] = h5py.Dataset(dataset)
                datasets[variable.name].attrs.update(variable.attributes)
            # a scale for each dimension, attached to the datasets that have it
            sizes = description.sizes
            labels = {"dof": description.joint_names, "trajectory": description.names}
            inner = {dim for variable in description.variables for dim in variable.dims[1:]}
            used = {"dof", *inner - {"row", "point"}, *(dim for v in shared for dim in v.dims)}
            for dim in (dim for dim in sizes if dim in used):
                size, label = sizes[dim], dim
                if dim == "time":
                    scale = datasets["time"]
                elif names := labels.get(dim):
                    scale = file.create_dataset(dim, data=list(names), dtype=h5py.string_dtype())
                else:
                    scale, label = _bare_dimension(file, dim, size)
                scale.make_scale(label)
                for variable in shared:
                    for axis, name in enumerate(variable.dims):
                        if name == dim and variable.name != dim:
                            h5py.h5ds.attach_scale(datasets[variable.name].id, scale.id, axis)
            if groups:
                self._make_groups(file)
            for name, texts in description.sources.items():
                parent, data = h5py.Group(_open_group(file.id, SOURCES)), [*map(decode_text, texts)]
                parent.create_dataset(name, data=data, dtype=h5py.string_dtype())
        # HDF5 has given every contiguous dataset its address, but the file may have holes there
        reserve(self._hidden.data, self._hidden.data.stat().st_size)
        if self._packed:
            values = self._hidden.path / "values"
            self._descriptors = dict.fromkeys(self._packed, self._open_file(values))
            reserve(values, self._end)

    def _make_datasets(
        self, parents: Sequence[Any], variable: Variable, group: int = 0
    ) -> Iterator[Any]:
        """Makes and yields a dataset for a variable in each group; notes where its values lie."""
        # contiguous datasets have their address in the file from now on; values that are compressed
        # at the end are kept in a file of their own
        shape = self.description.shape(variable, group)
        nbytes = math.prod(shape) * variable.dtype.itemsize
        # tables with one value for each trajectory are too small to be worth it
        rows = variable.has_trajectory_axis and len(variable.dims) > 1
        packed = self.level is not None and rows and math.prod(self.description.shape(variable)) > 0
        in_group = bool(self.description.groups) and variable.has_trajectory_axis
        properties = _untimed(h5py.h5p.DATASET_CREATE)
        if packed:
            count, length, *inner = shape
            entry = self.description.entry_bytes(variable, group)
            if entry > CHUNK_BYTES:
                length = max(1, CHUNK_BYTES * length // entry)
            # whole trajectories, so that reading one decompresses one chunk
            count = max(1, min(count, CHUNK_BYTES // entry))
            properties.set_chunk((length, *inner) if in_group else (count, length, *inner))
            properties.set_shuffle()
            properties.set_deflate(self.level)
        else:
            # early allocation gives the dataset its address before any value is written
            properties.set_layout(h5py.h5d.CONTIGUOUS)
            properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        if in_group:
            shape = shape[1:]
        space = h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)
        kind = h5py.h5t.py_create(variable.dtype, logical=True)
        path, _, name = variable.name.rpartition("/")
        addresses = []
        for parent in parents:
            folder = _open_group(parent, path) if path else parent
            dataset = h5py.h5d.create(folder, name.encode(), kind, space, properties)
            addresses.append(dataset.get_offset() if nbytes and not packed else 0)
            yield dataset
        if packed:
            self._packed.add(variable.name)
            addresses = [self._end + n * (nbytes // len(parents)) for n in range(len(parents))]
            self._end += nbytes
        self._addresses[variable.name, group] = np.array(addresses, np.int64)

    def _make_groups(self, file: Any) -> None:
        # HDF5's own functions take a third of the time of h5py's, and there may be thousands of
        # groups. Datasets are labelled as they are made, while HDF5 still has them at hand. As
        # h5ds.attach_scale would also list every dataset at the scale of the dofs, which takes
        # longer with each of them, axes refer to their scales, but not the reverse; no reader needs
        # that.
        folders = dict[str, Any]()
        sizes = self.description.sizes
        scales = {n: np.array([file[n].ref], h5py.ref_dtype) for n in sizes if n in file}
        creation = _untimed(h5py.h5p.GROUP_CREATE)
        scalar, text = h5py.h5s.create(h5py.h5s.SCALAR), h5py.string_dtype()
        text_type = h5py.h5t.py_create(text, logical=True)
        lists_type = h5py.h5t.vlen_create(h5py.h5t.STD_REF_OBJ)
        variables = [v for v in self.description.variables if v.has_trajectory_axis]
        variables.sort(key=lambda variable: variable.name != "time")  # the scale of the others
        for k, group in enumerate(self.description.groups):
            parents, times, points = [], list[Any](), list[Any]()
            for name in group.names:
                path, _, last = name.strip("/").rpartition("/")
                try:
                    if path not in folders:
                        folders[path] = _open_group(file.id, path)
                    parents.append(h5py.h5g.create(folders[path], last.encode(), None, creation))
                except ValueError as error:
                    raise OutputError(
                        "a group that cannot be made", where=name, found=str(error)
                    ) from None
                parents[-1].links.create_hard(b"dof", file.id, b"dof")
            for variable in variables:
                units, axes = variable.attributes.get("units"), variable.dims[1:]
                units_text = np.array(str(units), text)
                lists = np.empty(len(axes), h5py.vlen_dtype(h5py.ref_dtype))
                if "point" in axes:  # control points are fewer than rows, and differ by length
                    size = self.description.shape(variable, k)[1]
                    for parent in parents:
                        scale, label = _bare_dimension(h5py.Group(parent), "point", size)
                        scale.make_scale(label)
                        points.append(np.array([scale.ref], h5py.ref_dtype))
                axes_space = h5py.h5s.create_simple((max(len(axes), 1),))
                for i, dataset in enumerate(self._make_datasets(parents, variable, k)):
                    if units is not None:
                        attribute = h5py.h5a.create(dataset, b"units", text_type, scalar)
                        attribute.write(units_text)
                    for name in sorted({*variable.attributes} - {"units", "long_name"}):
                        h5py.Dataset(dataset).attrs[name] = variable.attributes[name]
                    if variable.name == "time":
                        h5py.h5ds.set_scale(dataset, b"time")
                        reference = h5py.h5r.create(dataset, b".", h5py.h5r.OBJECT)
                        times.append(np.array([reference], h5py.ref_dtype))
                    elif axes and times:
                        for axis, dim in enumerate(axes):
                            by_group = points if dim == "point" else times
                            lists[axis] = by_group[i] if dim in ("row", "point") else scales[dim]
                        attribute = h5py.h5a.create(
                            dataset, b"DIMENSION_LIST", lists_type, axes_space
                        )
                        attribute.write(lists)


def _bare_dimension(parent: Any, name: str, size: int) -> tuple[Any, str]:
    """Makes netCDF's mark of a dimension without coordinates or values, and its label."""
    label = f"This is a netCDF dimension but not a netCDF variable.{size:10d}"
    return parent.create_dataset(name, shape=(size,), dtype=">f4"), label


def _open_group(parent: Any, path: str) -> Any:
    """Opens a group, and makes it and those above it where there are none."""
    for name in filter(None, path.encode().split(b"/")):
        if name in parent:
            parent = h5py.h5g.open(parent, name)
        else:
            parent = h5py.h5g.create(parent, name, None, _untimed(h5py.h5p.GROUP_CREATE))
    return parent


def _untimed(kind: Any) -> Any:
    # objects do not say when they were made: the same input gives the same bytes
    properties = h5py.h5p.create(kind)
    properties.set_obj_track_times(False)
    return properties


def _access(groups: bool) -> Any:
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    # many groups are smaller and quicker in the format of HDF5 1.8
    oldest = h5py.h5f.LIBVER_V18 if groups else h5py.h5f.LIBVER_EARLIEST
    access.set_libver_bounds(oldest, h5py.h5f.LIBVER_LATEST)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    access.set_file_locking(False, True)
    # no buffers for values: HDF5 does not report what fails when a dataset is closed
    access.set_sieve_buf_size(0)
    access.set_cache(0, 0, 0, 0.75)
    return access
