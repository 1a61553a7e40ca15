"""The only way to an output file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

from trajcli.errors import Stopped
from trajcli.files.description import Description
from trajcli.files.file_bytes import Progress, SourceFiles
from trajcli.files.outputs import NpyOutput, NpzOutput, Output
from trajcli.files.refusals import output_family, refuse_form
from trajcli.system import is_command, signals


def write(
    out: Path,
    description: Description,
    blocks: Callable[[Output], Iterator[int]],
    *,
    overwrite: bool = False,
    compress: int | None = None,
    sources: SourceFiles | None = None,
    on_progress: Progress = lambda done, total: None,
) -> list[str]:
    """Writes an output: reserves its space in a hidden file, writes the blocks, and renames it.

    Parameters:
        out: the name of the file, which says its form: .h5 or .hdf5, .npz, .npy.
        description: what the file holds.
        blocks: called with the open output; writes a block of trajectories to it, then yields how
            many are written, until all are.
        overwrite: whether an existing OUT is replaced.
        compress: the level of deflate, 1 to 9, for HDF5.
        sources: the files that are read, which have to be the same when all is written.
        on_progress: called after each block.

    Returns:
        Remarks about the complete output.

    Raises:
        OutputError, BusyError: for an OUT that cannot be written, not in this form, or that another
            process writes.
        InputError: if a source changed while it was read.
        Stopped: if a signal came between two blocks. OUT is then, as after any error, what it was.
    """
    refuse_form(out, description, compress)
    total = description.sizes["trajectory"]
    output = _output_type(out)(out, description, compress)
    output.begin(overwrite)
    # the handlers of a process that imports this are its own
    with signals() if is_command() else nullcontext(lambda: None) as signal_name, output:
        for done in blocks(output):
            on_progress(done, total)
            if name := signal_name():
                raise stopped(out, name, done, total)
        # a change after the first read would mix two states of a file in one output
        if sources is not None:
            sources.require_unchanged()
        output.finish()
    return output.notes


def stopped(out: Path, reason: str, done: int, total: int) -> Stopped:
    """Returns the error of an output whose writing was stopped."""
    return Stopped(
        f"stopped by {reason}",
        where=str(out),
        found=f"{done} of {total} trajectories done",
        hint="run the same command again",
    )


def _output_type(out: Path) -> type[Output]:
    family = output_family(out)
    if family == "hdf5":
        from trajcli.files.hdf5_output import Hdf5Output

        return Hdf5Output
    return NpzOutput if family == "npz" else NpyOutput
