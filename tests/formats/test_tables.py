"""Tables as pandas reads them: each dialect is differentiated by one command, with no column typed
that the heading says; times, names and units are those of the rows that were written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import h5py
import numpy as np
import pytest

from trajcli import rotations

ROWS, STEP = 40, 0.02
BEGIN = 1_700_000_000_123_456_789
TIMES = STEP * np.arange(ROWS)
JOINTS = ["shoulder_pan", "elbow", "wrist"]
POSITIONS = np.sin(TIMES[:, None] * np.arange(1, 4) + np.arange(3))
VELOCITIES = np.cos(TIMES[:, None] * np.arange(1, 4) + np.arange(3)) * np.arange(1, 4)
TURNS = np.stack([np.sin(TIMES / 2), 0 * TIMES, 0 * TIMES, np.cos(TIMES / 2)], 1)
STAMPS = [BEGIN + 20_000_000 * k for k in range(ROWS)]


def table(
    heading: Sequence[str] | str, *columns: object, by: str = ",", comma: bool = False
) -> None:
    """Write log.csv; columns are lists of texts, or numbers [T] or [T, D]."""
    cells: list[list[str]] = []
    for column in columns:
        if isinstance(column, list):
            cells.append([str(cell) for cell in column])
            continue
        rows = np.asarray(column).reshape(ROWS, -1)
        cells += [[repr(float(value)) for value in row] for row in rows.T]
    if comma:
        cells = [[cell.replace(".", ",") for cell in column] for column in cells]
    lines = [by.join(row) for row in zip(*cells, strict=True)]
    head = heading if isinstance(heading, str) else by.join(heading)
    Path("log.csv").write_text("\n".join([head, *lines] if head else lines) + "\n")


def pandas_default() -> None:
    frame = pytest.importorskip("pandas").DataFrame(POSITIONS, columns=JOINTS)
    frame.insert(0, "time", TIMES)
    frame.to_csv("log.csv")


def pandas_dates() -> None:
    pandas = pytest.importorskip("pandas")
    dates = pandas.date_range("2024-05-01 10:00", periods=ROWS, freq="20ms")
    pandas.DataFrame(POSITIONS, index=dates, columns=JOINTS).to_csv("log.csv")


def pandas_seconds() -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame(POSITIONS, index=TIMES, columns=JOINTS).to_csv("log.csv")


def polars() -> None:
    pytest.importorskip("polars")
    import polars

    frame = polars.DataFrame({"timestamp": STAMPS, **dict(zip(JOINTS, POSITIONS.T, strict=True))})
    frame.with_columns(polars.from_epoch("timestamp", "ns")).write_csv("log.csv")


def plotjuggler() -> None:
    names = [f"/joint_states/{joint}/position" for joint in JOINTS]
    others = [f"/joint_states/{joint}/velocity" for joint in JOINTS]
    table(["__time", *names, *others], TIMES + 1.7e9, POSITIONS, VELOCITIES)


def euroc() -> None:
    heading = "#timestamp, p_RS_R_x [m], p_RS_R_y [m], p_RS_R_z [m], q_RS_w [], q_RS_x [], "
    heading += "q_RS_y [], q_RS_z [], v_RS_R_x [m s^-1], v_RS_R_y [m s^-1], v_RS_R_z [m s^-1]"
    table(heading, STAMPS, POSITIONS, TURNS, VELOCITIES)


def tum() -> None:
    table("# timestamp tx ty tz qx qy qz qw", TIMES + 1.3e9, POSITIONS, TURNS, by=" ")


def universal_robots() -> None:
    names = [f"{family}_{k}" for family in ["target_q", "actual_q", "actual_qd"] for k in range(3)]
    table(["timestamp", *names], TIMES + 99.5, POSITIONS + 1, POSITIONS, VELOCITIES, by=" ")


def kuka() -> None:
    names = [f"{name}{k} [°]" for name in "A" for k in (1, 2, 3)]
    table(["Zeit [s]", *names], TIMES, np.degrees(POSITIONS), by=";", comma=True)


NUMBERS = ["0", "1", "2"]
POSE = ["tx", "ty", "tz", "qx", "qy", "qz", "qw"]
Case = tuple[Callable[[], None], str, "list[str] | None", np.ndarray]


def columns(heading: str, *parts: object, **options: object) -> Callable[[], None]:
    return lambda: table(heading, *parts, **options)  # type: ignore[arg-type]


DIALECTS: dict[str, Case] = {
    "pandas": (pandas_default, "", JOINTS, POSITIONS),
    "pandas, an index of dates": (pandas_dates, "", JOINTS, POSITIONS),
    "pandas, an index of seconds": (pandas_seconds, "", JOINTS, POSITIONS),
    "polars": (polars, "", JOINTS, POSITIONS),
    "PlotJuggler": (plotjuggler, ":position", JOINTS, POSITIONS),
    "EuRoC": (euroc, "", ["p_RS_R_x", "p_RS_R_y", "p_RS_R_z"], POSITIONS),
    "EuRoC, a pose": (
        euroc, ":p_RS_R_*,q_RS_*", ["p_RS_R_x", "p_RS_R_y", "p_RS_R_z"], POSITIONS,
    ),
    "TUM": (tum, "", POSE[:3], POSITIONS),
    "TUM without a heading": (
        columns("", TIMES + 1.3e9, POSITIONS, TURNS, by=" "), "", POSE[:3], POSITIONS,
    ),
    "UR": (universal_robots, "", NUMBERS, POSITIONS),
    "KUKA": (kuka, "", ["A1", "A2", "A3"], POSITIONS),
    "LeRobot's names": (
        columns("timestamp," + ",".join(f"{one}.pos" for one in JOINTS), TIMES, POSITIONS),
        ":position", JOINTS, POSITIONS,
    ),
    "j1_pos": (
        columns("t,j1_pos,j2_pos,j3_pos,j1_vel,j2_vel,j3_vel", TIMES, POSITIONS, VELOCITIES),
        ":position", ["j1", "j2", "j3"], POSITIONS,
    ),
    "position_j1": (
        columns("t,position_j1,position_j2,position_j3", TIMES, POSITIONS), "",
        ["j1", "j2", "j3"], POSITIONS,
    ),
    "decimal commas": (
        columns("time;shoulder_pan;elbow;wrist", TIMES, POSITIONS, by=";", comma=True), "",
        JOINTS, POSITIONS,
    ),
    "quoted decimal commas": (
        columns(
            "time,shoulder_pan,elbow,wrist",
            *([f'"{x!r}"'.replace(".", ",") for x in xs.tolist()] for xs in (TIMES, *POSITIONS.T)),
        ),
        "", JOINTS, POSITIONS,
    ),
    "no heading": (columns("", TIMES, POSITIONS), "", None, POSITIONS),
    "a pair of stamps": (
        columns("stamp_sec,stamp_nsec,shoulder_pan,elbow,wrist",
                [one // 10**9 for one in STAMPS], [one % 10**9 for one in STAMPS], POSITIONS),
        "", JOINTS, POSITIONS,
    ),
    "header.stamp": (
        columns("header.stamp.sec,header.stamp.nanosec,position0,position1,position2",
                [one // 10**9 for one in STAMPS], [one % 10**9 for one in STAMPS], POSITIONS),
        "", NUMBERS, POSITIONS,
    ),
    "rostopic echo -p": (
        columns("%time,field.header.seq,field.header.stamp,field.header.frame_id,field.name0,"
                "field.position0,field.position1,field.position2",
                [one + 999 for one in STAMPS], list(range(ROWS)), STAMPS, ["base"] * ROWS,
                ["elbow"] * ROWS, POSITIONS),
        ":field/position", NUMBERS, POSITIONS,
    ),
    "texts beside": (
        columns("time,mode,shoulder_pan,elbow,wrist,remark",
                TIMES, ["auto"] * ROWS, POSITIONS, [""] * ROWS),
        "", JOINTS, POSITIONS,
    ),
    "some columns": (
        columns("time,force,shoulder_pan_joint,elbow_joint,wrist_joint",
                TIMES, TIMES, POSITIONS),
        ":*_joint", [f"{one}_joint" for one in JOINTS], POSITIONS,
    ),
    "numbered joints and a gripper": (
        columns("time,panda_joint1,panda_joint2,gripper", TIMES, POSITIONS), "",
        ["panda_joint1", "panda_joint2", "gripper"], POSITIONS,
    ),
    "elapsed milliseconds": (
        columns("frame,time_ms,x,y,z", list(range(ROWS)), 1000 * TIMES, POSITIONS), "",
        ["x", "y", "z"], POSITIONS,
    ),
    "degrees in the heading": (
        columns("time,shoulder_pan [deg],elbow [deg],wrist [rad]", TIMES,
                np.degrees(POSITIONS[:, :2]), POSITIONS[:, 2]),
        "", JOINTS, POSITIONS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_is_differentiated_by_one_command(trajcli, folder, dialect):
    make, source, names, expected = DIALECTS[dialect]
    make()
    trajcli(f"differentiate log.csv{source} --method central -o out.h5", code=0)
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(np.squeeze(file["position"]), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.ravel(file["time"]), TIMES, rtol=0, atol=2e-7)
        assert ("orientation" in file) == (dialect.startswith("TUM") or "pose" in dialect)
        if "orientation" in file:
            turns = TURNS if "TUM" in dialect else TURNS[:, [1, 2, 3, 0]]
            expected = rotations.to_quaternions(turns, "xyzw")
            np.testing.assert_allclose(rotations.angle(file["orientation"][0], expected), 0,
                                       atol=1e-12)  # fmt: skip
        labelled = "dof" in file and file["dof"].dtype.kind == "O"
        assert (file["dof"].asstr()[:].tolist() if labelled else None) == names


def test_rates_of_an_imu_are_recognised_in_the_heading(trajcli, folder):
    heading = "#timestamp [ns],w_RS_S_x [rad s^-1],w_RS_S_y [rad s^-1],w_RS_S_z [rad s^-1],"
    heading += "a_RS_S_x [m s^-2],a_RS_S_y [m s^-2],a_RS_S_z [m s^-2]"
    table(heading, STAMPS, VELOCITIES, POSITIONS)
    shown = trajcli("inspect log.csv --json").document
    arrays = {one["name"]: (one["shape"], one["units"]) for one in shown["datasets"]}
    assert arrays["w_RS_S"] == ([ROWS, 3], "rad s^-1")
    assert arrays["a_RS_S"] == ([ROWS, 3], "m s^-2")
    trajcli.refuses("differentiate log.csv -o out.h5", "a_RS_S")


@pytest.mark.parametrize("index", [None, "clock", "dates"])
def test_a_frame_in_parquet_is_read_as_the_same_in_text(trajcli, folder, index):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(POSITIONS, columns=JOINTS)
    if index == "dates":
        frame.index = pandas.date_range("2024-05-01 10:00", periods=ROWS, freq="20ms")
    else:
        frame.insert(0, index or "t", TIMES if index is None else 1.0 + TIMES)
    frame.insert(1, "mode", "auto")
    frame.to_parquet("log.parquet")
    times = " --times log.parquet:clock" if index == "clock" else ""
    trajcli(
        f"differentiate log.parquet:should*,elbow,wrist --method central -o out.h5{times}", code=0
    )
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(np.squeeze(file["position"]), POSITIONS)
        np.testing.assert_allclose(np.ravel(file["time"]), TIMES, rtol=0, atol=1e-7)
        assert file["dof"].asstr()[:].tolist() == JOINTS


@pytest.mark.parametrize("heading", ["time,shoulder,elbow,wrist", "time,q0,q1,q2"])
def test_angles_beyond_a_turn_without_a_unit_are_pointed_out(trajcli, folder, heading):
    table(heading, TIMES, np.degrees(POSITIONS))
    result = trajcli("differentiate log.csv -o out.h5")
    assert "--units deg" in " ".join((result.out + result.err).split())
    result = trajcli("differentiate log.csv --method central --units deg -o out.h5 --overwrite")
    assert result.code == 0, result.err
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(np.squeeze(file["position"]), POSITIONS, rtol=0, atol=1e-12)


@pytest.mark.parametrize("source", ["log.csv:clock", "clock.npy", "log.csv:clock_ms"])
def test_any_column_or_array_of_one_number_a_row_is_times(trajcli, folder, source):
    table("clock,clock_ms [ms],a,b,c", TIMES, 1000 * TIMES, POSITIONS)
    np.save("clock.npy", TIMES[:, None])
    trajcli(f"differentiate log.csv:a,b,c --times {source} -o out.h5", code=0)
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(np.ravel(file["time"]), TIMES, rtol=0, atol=1e-12)


def test_blank_cells_are_missing_values(trajcli, folder):
    table("time,a,b,c", TIMES, [*map(str, POSITIONS[:-1, 0].tolist()), ""], POSITIONS[:, 1:])
    trajcli.refuses("differentiate log.csv -o out.h5", "step 39, dof 0")
    trajcli("differentiate log.csv --allow-nonfinite -o out.h5", code=0)
    with h5py.File("out.h5") as file:
        assert np.isnan(np.squeeze(file["recorded_position"])[-1, 0])
        assert np.isfinite(file["position"]).all()


def test_ambiguous_columns_of_numbers_must_be_named(trajcli, folder):
    table("time,left1,left2,right1", TIMES, POSITIONS)
    trajcli("differentiate log.csv -o out.h5", code=0)
    table("time,left1,left2,right1,right2,x", TIMES, POSITIONS, POSITIONS[:, 1:])
    refused = trajcli("differentiate log.csv -o other.h5", code=2)
    hint = refused.err.split("name one as ")[1].split()[0]
    assert hint == "log.csv:left"
    trajcli(f"differentiate {hint} -o other.h5", code=0)
