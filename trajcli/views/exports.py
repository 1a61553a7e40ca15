"""Trajectories for other programs: CSV (PlotJuggler), .rrd (rerun), .npz and .npy."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.placing import new_file
from trajcli.views.motions import Motions, Trajectories
from trajcli.views.scan import Progress
from trajcli.views.selection import rows_of, select

_ROWS = 1 << 14
_MOST_COLUMNS = 16384
SUFFIXES = (".csv", ".rrd", ".npz", ".npy")


@dataclass(frozen=True)
class Track:
    """A trajectory that is exported: its name, and its rows begin..end in a set."""

    name: str
    motions: Motions
    own: int
    begin: int
    end: int
    dofs: Sequence[int]

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Its rows, some at a time."""
        for first in range(self.begin, self.end, _ROWS):
            yield first, min(first + _ROWS, self.end)

    def times(self, first: int, last: int) -> Any:
        """Times of rows; their numbers where the file gives none."""
        if self.motions.steps:
            return self.motions.steps.times(self.own, first, last)
        return np.arange(first, last)

    def values(self, quantity: str, first: int, last: int) -> Any:
        """Rows of a quantity [n, dofs], as they are stored."""
        stored = self.motions.arrays[quantity]
        rows = np.asarray(stored.read_part(self.own, self.own + 1, first, last))[0]
        return rows[:, self.dofs].astype(rows.dtype.newbyteorder("="), copy=False)


def require_kind(path: Path) -> None:
    """Raise UsageError where the name of OUT is of no kind that can be exported."""
    if path.suffix.lower() not in SUFFIXES:
        expected = f"OUT{', OUT'.join(SUFFIXES)}"
        raise UsageError(
            Fault("unknown kind of export", str(path), expected, path.suffix or "none")
        )


def tracks_of(
    found: Trajectories, index: str | None, dof: str | None, rows: str | None
) -> list[Track]:
    """The trajectories that are exported, by default all."""
    chosen = select(index, found.count, "--index")
    tracks = []
    for number in chosen:
        motions, own = found.at(number)
        begin, end = rows_of(rows, motions.rows(own))
        dofs = list(select(dof, motions.shape[2], "--dof", motions.dofs))
        tracks.append(Track(found.name(number), motions, own, begin, end, dofs))
    if not tracks:
        where = str(found.main[0].file.path) if found.main else ""
        raise InputError(Fault("nothing to export", where, "trajectories", "an empty batch"))
    return tracks


def write(
    tracks: Sequence[Track], out: Path, overwrite: bool, on_progress: Progress
) -> dict[str, Any]:
    """Write tracks in the kind that OUT's name asks for; returns what was written."""
    if out.suffix.lower() == ".npz":
        _write_npz(tracks, out, overwrite, on_progress)
    else:
        kinds: dict[str, Callable[..., None]] = {
            ".csv": _write_csv,
            ".rrd": _write_rrd,
            ".npy": _write_npy,
        }
        with new_file(out, overwrite) as hidden:
            kinds[out.suffix.lower()](tracks, hidden, on_progress)
    quantities = list(tracks[0].motions.arrays)
    return {"out": str(out), "trajectories": len(tracks), "quantities": quantities}


def _columns(tracks: Sequence[Track]) -> list[str]:
    """quantity/dof, below the trajectory's name where there are several."""
    names = []
    for track in tracks:
        prefix = f"{track.name}/" if len(tracks) > 1 else ""
        dofs = [track.motions.dofs[i] for i in track.dofs]
        names += [f"{prefix}{quantity}/{dof}" for quantity in track.motions.arrays for dof in dofs]
    return names


def _write_csv(tracks: Sequence[Track], path: Path, on_progress: Progress) -> None:
    """A row per row, `t` first: one time for all trajectories."""
    first = tracks[0]
    _require_one_time(tracks)
    columns = _columns(tracks)
    if len(columns) > _MOST_COLUMNS:
        hint = "--index, or an .rrd or .npz file"
        expected = f"at most {_MOST_COLUMNS} columns"
        raise UsageError(Fault("too wide for a CSV", "--index", expected, str(len(columns)), hint))
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerow(
            ["t" if first.motions.steps else "row", *columns]
        )
        for begin, end in first.blocks():
            cells = [_texts(first.times(begin, end)[:, None])]
            for track in tracks:
                shift = track.begin - first.begin
                for quantity in track.motions.arrays:
                    cells.append(_texts(track.values(quantity, begin + shift, end + shift)))
            for parts in zip(*cells, strict=True):
                file.write(",".join(",".join(part) for part in parts) + "\n")
            on_progress(end - first.begin, first.end - first.begin)


def _texts(values: Any) -> list[list[str]]:
    """Numbers with as many digits as bring them back: [rows][columns]."""
    if values.dtype == np.float64 or values.dtype.kind in "iu":
        return [list(map(repr, row)) for row in values.tolist()]
    texts: list[list[str]] = values.astype(str).tolist()
    return texts


def _require_one_time(tracks: Sequence[Track]) -> None:
    """Raise UsageError where trajectories that share a table have times of their own."""
    first = tracks[0]
    steps = first.motions.steps
    shared = steps.stamps.ndim == 1 if steps.stamps is not None else isinstance(steps.dt, float)
    hint = "--index 0 exports the first; an .rrd holds times of every trajectory"
    for track in tracks[1:]:
        if (track.end - track.begin) != (first.end - first.begin):
            rows = f"{first.end - first.begin} and {track.end - track.begin} rows"
            what = "trajectories of different length in one table"
            raise UsageError(Fault(what, "OUT.csv", "one trajectory, or equal lengths", rows, hint))
        if steps and not (shared and track.motions is first.motions):
            span = (first.begin, first.end), (track.begin, track.end)
            if not np.array_equal(first.times(*span[0]), track.times(*span[1])):
                what = "trajectories with times of their own in one table"
                expected = "one trajectory, or one time for all"
                raise UsageError(Fault(what, "OUT.csv", expected, str(steps.source), hint))


def _write_rrd(tracks: Sequence[Track], path: Path, on_progress: Progress) -> None:
    """A scalar series per dof on the duration time line `time`."""
    rerun = require_rerun()
    recording = rerun.RecordingStream("trajcli", recording_id=path.name, send_properties=False)
    try:
        recording.save(path)
        for done, track in enumerate(tracks):
            for quantity in track.motions.arrays:
                _send(rerun, recording, track, quantity, len(tracks) > 1)
            on_progress(done + 1, len(tracks))
        recording.flush()
    finally:
        recording.disconnect()


def require_rerun() -> Any:
    """The library; raises UsageError with the line that installs it."""
    try:
        import rerun
    except ImportError as error:
        hint = "pip install rerun-sdk"
        raise UsageError(Fault("no rerun here", "export", found=str(error), hint=hint)) from None
    return rerun


def _send(rerun: Any, recording: Any, track: Track, quantity: str, several: bool) -> None:
    """The columns of one quantity of one trajectory."""
    names = [track.motions.dofs[i] for i in track.dofs]
    prefix = [f"trajectory_{track.name}"] if several else []
    entities = [rerun.new_entity_path([*prefix, quantity, name]) for name in names]
    for entity, name in zip(entities, names, strict=True):
        recording.log(entity, rerun.SeriesLines(names=f"{quantity}/{name}"), static=True)
    for first, last in track.blocks():
        when = track.times(first, last)
        timed = bool(track.motions.steps)
        index = (
            rerun.TimeColumn("time", duration=when)
            if timed
            else rerun.TimeColumn("row", sequence=when)
        )
        values = track.values(quantity, first, last).astype(np.float64)
        for i, entity in enumerate(entities):
            columns = rerun.Scalars.columns(scalars=np.ascontiguousarray(values[:, i]))
            recording.send_columns(entity, indexes=[index], columns=columns)


def _write_npy(tracks: Sequence[Track], path: Path, on_progress: Progress) -> None:
    """One quantity [n, rows, dofs]."""
    first = tracks[0]
    quantities = list(first.motions.arrays)
    if len(quantities) > 1:
        hint = f"trajcli export {first.motions.file.path}:{first.motions.group}{quantities[0]}"
        what = "one .npy holds one array"
        raise UsageError(Fault(what, "OUT.npy", "FILE:DATASET", ", ".join(quantities), hint))
    shape = _one_shape(tracks)
    kind = first.motions.arrays[quantities[0]].dtype.newbyteorder("=")
    from numpy.lib.format import open_memmap

    array = open_memmap(path, mode="w+", dtype=kind, shape=shape)
    for n, track in enumerate(tracks):
        for begin, end in track.blocks():
            at = slice(begin - track.begin, end - track.begin)
            array[n, at] = track.values(quantities[0], begin, end)
        on_progress(n + 1, len(tracks))
    array.flush()


def _one_shape(tracks: Sequence[Track]) -> tuple[int, int, int]:
    first = tracks[0]
    lengths = sorted({track.end - track.begin for track in tracks})
    if len(lengths) > 1:
        found = f"{lengths[0]} to {lengths[-1]} rows"
        hint = "--index 0, or --rows for those that all have"
        what = "trajectories of different length in one array"
        raise UsageError(Fault(what, "OUT", "equal lengths", found, hint))
    return len(tracks), lengths[0], len(first.dofs)


def _write_npz(tracks: Sequence[Track], out: Path, overwrite: bool, on_progress: Progress) -> None:
    """Every quantity [n, rows, dofs], time and names, as trajcli itself writes them."""
    from trajcli.files.outputs import discarding, open_output
    from trajcli.files.schema import Schema, Variable

    first = tracks[0]
    shape = _one_shape(tracks)
    dims = ("trajectory", "row", "dof")
    sizes = dict(zip(dims, shape, strict=True))
    variables = [
        Variable(name, dims, shape, stored.dtype.newbyteorder("="), _labels(first.motions, name))
        for name, stored in first.motions.arrays.items()
    ]
    if first.motions.steps:
        label = {"units": "s"}
        variables.append(Variable("time", dims[:2], shape[:2], np.dtype("f8"), label))
    attributes = {"source": first.motions.file.path.name}
    schema = Schema(sizes, variables, attributes, [first.motions.dofs[i] for i in first.dofs])
    with discarding(open_output(out, schema, overwrite, False)) as output:
        for n, track in enumerate(tracks):
            for name in first.motions.arrays:
                output.write(name, n, track.values(name, track.begin, track.end)[None])
            if first.motions.steps:
                output.write("time", n, track.times(track.begin, track.end)[None])
            on_progress(n + 1, len(tracks))
        output.finish()


def _labels(motions: Motions, name: str) -> dict[str, str]:
    unit = motions.unit(name)
    return {"units": unit} if unit else {}
