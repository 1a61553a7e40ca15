"""Tables as programs export them: what stands before the rows, behind them and between them."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

TIMES = 0.01 * np.arange(120)
# nine decimals, as they are written
ANGLES = np.round(np.degrees(np.sin(TIMES[:, None] * [1, 3] + [0.3, 1])), 9)
DIFFER = "differentiate log.csv{} --method central -o out.h5"


def rows(
    by: str = ",", behind: str = "", end: str = "\n", comma: bool = False, scale: float = 1.0
) -> str:
    """The lines of 120 rows of a time and two angles."""
    lines = [
        by.join([f"{scale * time:.2f}", *(f"{angle:.9f}" for angle in pair)]) + behind + end
        for time, pair in zip(TIMES, ANGLES, strict=True)
    ]
    return "".join(lines).replace(".", ",") if comma else "".join(lines)


def scope(*ways: str) -> str:
    """TwinCAT's Scope: a project, then a time in ms and a value for each channel."""
    head = "Name\tYT Scope Project\r\nFile\tC:\\arm.sv2\r\nStarttime of export\t132\tMontag\r\n\r\n"
    pairs = {"Name": ["Axis 1.Pos", "Axis 2.Pos"], "SymbolComment": ["", ""],
             "Data-Type": ["REAL64"] * 2, "SampleTime[ms]": ["10"] * 2}  # fmt: skip
    for key, (first, second) in pairs.items():
        head += f"{key}\t{first}\t{key}\t{second}\r\n"
    late = 5 if "late" in ways else 0
    lines = [
        f"{10 * k}\t{a:.9f}\t{10 * k + late}\t{b:.9f}\r\n".replace(".", ",")
        for k, (a, b) in enumerate(ANGLES)
    ]
    return head + "\r\n" + "".join(lines)


HEAD = "Time,J1,J2\n"
OPENSIM = (
    "arm\nversion=1\nnRows=120\nnColumns=3\ninDegrees=yes\n\nUnits are S.I. units\n\nendheader\n"
)
# how the file is written, and whether it says that its angles are in degrees
FORMS: dict[str, tuple[str, bool]] = {
    "a spreadsheet's sep": ("\ufeffsep=;\r\nTime;J1;J2\r\n" + rows(";", "", "\r\n", True), False),
    "another sep": ("sep=|\nTime|J1|J2\n" + rows("|"), False),
    "a title": ("Recording of arm 3\nTime [s],J1 [deg],J2 [deg]\n" + rows(), True),
    "a title of as many words": ("Recording of arm\nt J1 J2\n" + rows(" "), False),
    "keys and values": ("Name;Arm\nRate;100\n\nTime;J1;J2\n" + rows(";"), False),
    "a report": ("RESERVOIR EXPORT\nUnit system : METRIC\n\nTime;J1;J2\n" + rows(";"), False),
    "OpenSim": (OPENSIM + "time\tJ1\tJ2\n" + rows("\t"), False),
    "OpenSim, spaces": (OPENSIM + "time J1 J2\n" + rows("    "), False),
    "Scope": (scope(), False),
    "units": ("Time,J1,J2\ns,deg,deg\n" + rows(), True),
    "units in brackets": ("Time,J1,J2\n[s],[deg],[deg]\n" + rows(), True),
    "units in parentheses": ("Time,J1,J2\n(ms),(deg),(deg)\n" + rows(scale=1000), True),
    "units of some": ("Time [s],J1,J2\n,deg,deg\n" + rows(), True),
    "a separator behind": ("Time;J1;J2;\n" + rows(";", ";"), False),
    "a separator behind rows": (HEAD + rows(",", ","), False),
    "a separator behind units": (
        "Time;J1;J2;\r\ns;deg;deg;\r\n" + rows(";", ";", "\r\n", True), True,
    ),
    "a separator behind the heading": ("Time,J1,J2,\n" + rows(), False),
    "a column of blanks with a name": ("Time,J1,J2,note\n" + rows(",", ","), False),
    "blank lines at the end": (HEAD + rows() + "\n  \n\n", False),
    "blank rows at the end": (
        "Time;J1;J2\r\n" + rows(";", "", "\r\n", True) + ";;\r\n;;\r\n", False,
    ),
    "blank rows at the end, cut": (HEAD + rows() + ",,\n,,", False),
    "ends of old Macs": ((HEAD + rows()).replace("\n", "\r"), False),
    "more comments than lines are looked at": ("# arm\n" * 400 + HEAD + rows(), False),
    "a heading in a comment": ("# log of an arm\n# Time,J1,J2\n" + rows(), False),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_read_as_it_is_exported(trajcli, folder, form):
    text, degrees = FORMS[form]
    Path("log.csv").write_bytes(text.encode())
    trajcli.ok(DIFFER.format(""))
    with h5py.File("out.h5") as file:
        expected = np.radians(ANGLES) if degrees else ANGLES
        np.testing.assert_allclose(np.squeeze(file["position"]), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.ravel(file["time"]), TIMES, rtol=0, atol=1e-9)
        names = ["Axis 1.Pos", "Axis 2.Pos"] if form == "Scope" else ["J1", "J2"]
        assert file["dof"].asstr()[:].tolist() == names


def test_keys_and_values_before_two_columns_are_no_heading(trajcli, folder):
    lines = "".join(f"{a};{b}\n" for a, b in ANGLES.tolist())
    Path("log.csv").write_text("Robot;arm\nMode;fast\nJ1;J2\n" + lines)
    trajcli.ok(DIFFER.format("") + " --rate 100")
    with h5py.File("out.h5") as file:
        assert file["dof"].asstr()[:].tolist() == ["J1", "J2"]


def test_unknown_units_are_noted(trajcli, folder):
    Path("log.csv").write_text("Time,volt,force\ns,V,N\n" + rows())
    assert "'V,N', which is not known" in " ".join(trajcli.ok(DIFFER.format("")).err.split())


@pytest.mark.parametrize("form", ["a title", "Scope"])
def test_the_line_of_the_heading_is_noted_where_lines_are_skipped(trajcli, folder, form):
    Path("log.csv").write_bytes(FORMS[form][0].encode())
    said = " ".join(trajcli.ok(DIFFER.format("")).err.split())
    first, begin = {"a title": (2, 3), "Scope": (5, 10)}[form]
    assert f"line {first} is the heading, and rows begin in line {begin}" in said


@pytest.mark.parametrize("ending", ["mot", "sto"])
def test_degrees_of_an_opensim_file_are_said(trajcli, folder, ending):
    Path(f"log.{ending}").write_text(OPENSIM + "time\tJ1\tJ2\n" + rows("\t"))
    line = f"differentiate log.{ending}:J1,J2 --method central -o out.h5"
    assert "inDegrees=yes" in trajcli.ok(line).err
    assert "inDegrees" not in trajcli.ok(f"{line} --units deg --overwrite").err
    with h5py.File("out.h5") as file:
        np.testing.assert_allclose(np.squeeze(file["position"]), np.radians(ANGLES), atol=1e-12)


@pytest.mark.parametrize(
    ("rest", "line"),
    [("1.20,3.000", 122), ("1.20,3.00000000", 122), ("1.20,3.000000000,", 122), ("1.20\n\n", 122),
     ("1.20,3.0,1.\r\n# end\r\n", None), ("1.20,3.0,4.12", 122),
     ("1.20,3.0,4.12\n", None), ("End of data\n", 122)],
)  # fmt: skip
def test_a_last_line_that_is_cut_is_left_out_and_said(trajcli, folder, rest, line):
    Path("log.csv").write_text(HEAD + rows() + rest)
    result = trajcli.ok(DIFFER.format(""))
    with h5py.File("out.h5") as file:
        assert file["position"].shape[1] == len(TIMES) + (line is None)
    assert (f"breaks off in line {line}" in result.err) == (line is not None)


def test_a_line_without_its_separator_behind_is_cut(trajcli, folder):
    Path("log.csv").write_text("Time;J1;J2;\n" + rows(";", ";") + "1.20;3.000000000;4.0")
    assert "breaks off in line 122" in trajcli.ok(DIFFER.format("")).err
    with h5py.File("out.h5") as file:
        assert file["position"].shape[1] == len(TIMES)


def test_names_that_occur_twice_are_told_apart_as_pandas_does(trajcli, folder):
    pandas = pytest.importorskip("pandas")
    both = np.column_stack([TIMES, ANGLES, 2 * ANGLES])
    np.savetxt("log.csv", both, "%.9f", ",", header="time,q_d[0],q_d[1],q_d[0],q_d[1]", comments="")
    frame = pandas.read_csv("log.csv")
    for source in ("q_d", "q_d.1", "q_d[0].1,q_d[1].1"):
        assert "q_d[0].1" in trajcli.ok(DIFFER.format(f":{source}") + " --overwrite").err
        columns = ["q_d[0].1", "q_d[1].1"] if ".1" in source else ["q_d[0]", "q_d[1]"]
        with h5py.File("out.h5") as file:
            np.testing.assert_array_equal(np.squeeze(file["position"]), frame[columns])
    trajcli.refuses("differentiate log.csv -o other.h5", "q_d.1 [120, 2]")


FAMILIES = {
    "numbered joints": ("time,J1,J2,temp,status,override", "J", ["J1", "J2"]),
    "a root": ("time,root_x,root_y,battery,mode,on", "root", ["root_x", "root_y"]),
    "dofs with units": (
        "time,dof_knee(rad),dof_hip(rad),temp,mode,on", "dof", ["dof_knee", "dof_hip"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("table", FAMILIES)
def test_a_single_family_of_numbered_columns_is_the_motion(trajcli, folder, table):
    heading, source, names = FAMILIES[table]
    others = [20.5 + TIMES, np.floor(TIMES), np.full(len(TIMES), 87.5)]
    if table == "a root":
        others[2] = np.ones(len(TIMES))
    columns = np.column_stack([TIMES, ANGLES, *others])
    np.savetxt("log.csv", columns, "%.9f", ",", header=heading, comments="")
    result = trajcli.ok(DIFFER.format(""))
    left = ", ".join(heading.split(",")[3:])
    assert f"log.csv:{source} is taken, and {left} left out" in " ".join(result.err.split())
    assert "left out" not in trajcli.ok(DIFFER.format(f":{source}*") + " --overwrite").err
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(np.squeeze(file["position"]), ANGLES)
        assert file["dof"].asstr()[:].tolist() == names


@pytest.mark.parametrize("heading", ["time,J1,J2,gripper", "time,J1,J2,E1", "time,x,y,theta"])
def test_columns_that_are_like_joints_are_taken_with_them(trajcli, folder, heading):
    columns = np.column_stack([TIMES, ANGLES, ANGLES[:, 0]])
    np.savetxt("log.csv", columns, "%.9f", ",", header=heading, comments="")
    trajcli.ok(DIFFER.format(""))
    with h5py.File("out.h5") as file:
        assert file["dof"].asstr()[:].tolist() == heading.split(",")[1:]


def test_two_families_are_an_error_that_lists_them(trajcli, folder):
    columns = np.column_stack([TIMES, ANGLES, ANGLES])
    np.savetxt("log.csv", columns, "%.9f", ",", header="time,J1,J2,K1,K2", comments="")
    trajcli.refuses(DIFFER.format(""), "J [120, 2]", "K [120, 2]", "log.csv:J")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Time,J1\n" + rows(), ["log.csv, line 1: a heading of another length", "--skip-rows 1"]),
        ("arm 3\n" + HEAD + rows() + "1,2,3,4\n1,2,3\n", ["line 123: a row of", "line 2 is the"]),
        ("arm 3\n" + HEAD + rows() + "1.20,?,3\n1,2,3\n", ["line 123, column J1", "line 2 is the"]),
        (scope("late"), ["columns with different times", "line 5 is the heading"]),
        ("1,2,3\n" + HEAD + rows(), ["line 2, column data0", "there is no heading"]),
    ],
)
def test_an_error_of_a_table_says_the_line_of_its_heading(trajcli, folder, text, parts):
    Path("log.csv").write_text(text)
    trajcli.refuses(DIFFER.format(""), *parts)


def test_a_missing_column_is_refused_with_the_line_of_the_heading(trajcli, folder):
    Path("log.csv").write_text("arm 3\n" + HEAD + rows())
    trajcli.refuses(DIFFER.format(":J7"), "no such dataset", "line 2 is the heading")


@pytest.mark.parametrize("command", ["differentiate", "resample", "fit", "export", "integrate"])
def test_rows_that_are_skipped_are_not_looked_at(trajcli, folder, command):
    Path("log.csv").write_text("1,2,3\n4,5,6\nTime,J1,J2\n" + rows())
    more = {"differentiate": "--method central -o out.h5", "resample": "--to 50 -o out.h5",
            "fit": "--knots 9 -o out.h5", "export": "-o out.h5",
            "integrate": "--mode velocity --start zero -o out.h5"}[command]  # fmt: skip
    trajcli.ok(f"{command} log.csv --skip-rows 2 {more}")
    if command == "differentiate":
        trajcli.ok("check out.h5 --recompute")
    with h5py.File("out.h5") as file:
        assert file["dof"].asstr()[:].tolist() == ["J1", "J2"]
    trajcli.refuses(f"{command} log.csv --skip-rows -1 {more.replace('out', 'other')}")
    trajcli.refuses(f"{command} log.csv --skip-rows 999 {more.replace('out', 'other')}", "rows")


def test_skip_rows_without_a_table_of_text_is_noted(trajcli, folder):
    np.savez("log.npz", position=ANGLES, dt=0.01)
    line = "differentiate log.npz --method central -o out.h5 --skip-rows 2"
    assert "and log.npz is none" in " ".join(trajcli.ok(line).err.split())
