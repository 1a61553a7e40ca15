"""The one way to an output: what OUT's name asks for, opened to be written."""

from __future__ import annotations

from pathlib import Path

from trajcli.files.outputs import NpyOutput, NpzOutput, Output
from trajcli.files.refusals import output_family, refuse_form
from trajcli.files.schema import Schema


def open_output(path: Path, schema: Schema, overwrite: bool, compress: int | None = None) -> Output:
    """The output that OUT's name asks for: .h5/.hdf5, .npz or .npy.

    compress: the level of deflate, 1 to 9, for HDF5.

    Raises OutputError where OUT cannot be written, or not in this form.
    """
    refuse_form(path, schema, compress)
    writer: type[Output]
    if (family := output_family(path)) == "hdf5":
        from trajcli.files.hdf5_output import Hdf5Output

        writer = Hdf5Output
    else:
        writer = NpzOutput if family == "npz" else NpyOutput
    output = writer(path, schema, compress)
    output.begin(overwrite)
    return output
