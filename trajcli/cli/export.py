"""trajcli export: writes trajectories for other programs."""

from __future__ import annotations

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console, bytes_text, count_text, units_lines

EXAMPLE = """
Examples, on files in sample_data:

    trajcli export sample_data/reach.h5:reference --episodes 3 -o reach.csv --overwrite

    trajcli export sample_data/recorded.h5 -o recorded.npz --overwrite
"""


_ACTIONS = {"absolute": options.Absolute, "rotation_frame": options.RotationFrame}


@options.command(options.READING, options.REPAIR, options.TABLE, _ACTIONS)
def export(
    console: Console,
    source: options.OneSource,
    out: options.Export,
    lerobot: options.LeRobot = None,
    to_units: options.ToUnits = None,
    actions_as: options.ActionsAs = None,
    overwrite: options.Overwrite = False,
    **reading: Any,
) -> None:
    """Write trajectories for other programs.

    The ending of OUT names the format: .csv for PlotJuggler, .rrd for rerun, .parquet for pandas,
    .npz or .npy for NumPy, .tum for evo, .yaml or .json for ros2_control, and .h5; -o - writes CSV
    to stdout. With --lerobot OUT is a copy of a LeRobot data set.

    A table has a column t and a column for each quantity and joint, like position/joint1; with
    several trajectories its first column is trajectory. An .rrd has the same as scalars on the
    time line "time", and orientations as transforms; it needs rerun-sdk. A .parquet needs pyarrow.
    A .tum has lines "timestamp tx ty tz qx qy qz qw" of one trajectory; without positions tx, ty
    and tz are 0. A .yaml or .json is a JointTrajectory of named joints.

    --actions-as turns positions into what `integrate --mode clique --actions` turns back into them.
    Row 0 is the start: T rows are T - 1 actions, each with its step (dt).
    """
    from trajcli.errors import UsageError
    from trajcli.files.atomic_output import refuse_input, refuse_path
    from trajcli.files.reading import Repair
    from trajcli.jobs.resolve import units_report
    from trajcli.units import parse_option
    from trajcli.views.export import require_kind, select_trajectories, write_export, write_lerobot
    from trajcli.views.table import TableForm

    table = {name: reading.pop(name) for name in options.TABLE}
    names = (name.strip() for name in (table.pop("columns") or "").split(","))
    form, to_stdout = TableForm(tuple(filter(None, names)), **table), str(out) == "-"
    absolute, frame = (reading.pop(name) for name in _ACTIONS)
    if to_stdout and (console.as_json or lerobot is not None):
        where = "-o - and " + ("--json" if console.as_json else "--lerobot")
        raise UsageError("cannot be combined", where=where, expected="one of them")
    if actions_as is None and (absolute is not None or frame != "world"):
        where = "--rotation-frame" if absolute is None else "--absolute"
        raise UsageError("an option of --actions-as", where=where, expected="both")
    # text for people must not mix with the CSV
    console.stream = "stderr" if to_stdout else console.stream
    repair = Repair(**{name: reading.pop(name) for name in options.REPAIR})
    units = parse_option(to_units, "--to-units")
    # a wrong name is refused before anything is read
    if lerobot is None:
        require_kind(out, units, form, actions_as is not None)
        if not to_stdout:
            refuse_path(out, overwrite)
    elif form != TableForm():
        raise UsageError("--lerobot DIR has no CSV", where="-o")
    elif overwrite:
        raise UsageError("--lerobot DIR writes to a new folder", where="--overwrite")
    with console.open_files(reading) as files:
        chosen = select_trajectories(files, source, repair, units)
        if actions_as is not None:
            chosen = chosen.as_actions(actions_as, absolute, frame)
        chosen.form = form
        # --overwrite never replaces a source
        refuse_input(out, files.paths())
        if lerobot is None:
            write_export(chosen, out, overwrite, files)
        else:
            write_lerobot(chosen, files, lerobot, out)
        parts = out.rglob("*") if out.is_dir() else [out]
        size = sum(part.stat().st_size for part in parts if part.is_file())
    console.remark(*files.report.notes)
    count = len(chosen.numbers)
    console.say(*units_lines(units_report(chosen.batch)))
    trajectories = count_text(count, "trajectory", "trajectories")
    written = "" if to_stdout else f", {bytes_text(size)}"
    console.say(f"{out}: {trajectories}, {', '.join(chosen.written)}{written}")
    if chosen.others:
        console.say(f"not exported: {', '.join(chosen.others)}; FILE:DATASET names one")
    report = {"trajectories": count, "quantities": chosen.written, "bytes": size}
    console.write_document({"out": str(out), **report})
