"""Records, one a row: JSON, lines of JSON, what ros2 topic echo prints, and compound types."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

SINCE = 1_757_503_719_467_059_058
STEP = 20_000_000
TIMES = STEP * 1e-9 * np.arange(40)
POSITIONS = np.sin(TIMES[:, None] * 2 + np.arange(3))
JOINTS = ["shoulder", "elbow", "wrist"]
CENTRAL = "--method central -o out.h5 --overwrite"


def positions_of(result, path: str = "out.h5"):
    """Returns the positions, times and the first stamp of an output of differentiate."""
    assert result.code == 0, result.err
    with h5py.File(path) as file:
        time, since = np.ravel(file["time"]), file["start_stamp"][:] if "start_stamp" in file else 0
        np.testing.assert_allclose(time, np.arange(len(time)) * STEP * 1e-9, rtol=0, atol=1e-12)
        names = file["dof"][:].astype(str).tolist()
        return np.squeeze(file["position"]), names, int(np.max(since))


# -- JSON ------------------------------------------------------------------------------------------
def record(k: int) -> dict[str, object]:
    return {"seq": k, "t": TIMES[k], "state": {"q": POSITIONS[k].tolist(), "mode": "run"}}


RECORDS = [record(k) for k in range(len(TIMES))]
LINES = [json.dumps(one) for one in RECORDS]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("log.json", json.dumps(RECORDS, indent=1).encode()),
        ("log.json", json.dumps({"robot": "arm", "log": RECORDS}).encode()),
        ("log.json", "\n".join(LINES).encode()),
        ("log.jsonl", ("\n".join(LINES) + "\n").encode()),
        ("log.ndjson", codecs.BOM_UTF8 + ("\r\n".join(LINES) + "\r\n\r\n").encode()),
        ("LOG.JSONL", "\n\n".join(LINES).encode("utf-16")),
    ],
)
def test_records_of_json_are_rows(trajcli, folder, name, data):
    Path(name).write_bytes(data)
    below = "log/" if data.startswith(b'{"robot"') else ""
    for source in (name, f"{name}:{below}state/q"):
        found, _, _ = positions_of(trajcli(f"differentiate {source} {CENTRAL}"))
        np.testing.assert_array_equal(found, POSITIONS)


def test_fields_of_records_are_columns_of_a_table(trajcli, folder):
    names = ["time [s]", "arm.pos.x", "arm.pos.y", "q_1 [deg]", "q_2 [deg]", "label"]
    rows = [[t, *p[:2], *(10 * p[1:]), "a"] for t, p in zip(TIMES, POSITIONS, strict=True)]
    Path("log.csv").write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]))
    lines = (json.dumps(dict(zip(names, row, strict=True))) for row in rows)
    Path("log.jsonl").write_text("\n".join(lines))
    for dataset in ("arm/pos", "q", "q_2", "q_1,q_2", "q_*", "arm.pos.y,q_1"):
        trajcli(f"differentiate log.csv:{dataset} --method central -o csv.h5 --overwrite", code=0)
        trajcli(f"differentiate log.jsonl:{dataset} {CENTRAL}", code=0)
        with h5py.File("csv.h5") as a, h5py.File("out.h5") as b:
            assert set(a) == set(b)
            for name in ("position", "velocity", "time"):
                np.testing.assert_array_equal(a[name], b[name])
            if "dof" in a:
                assert a["dof"][:].tolist() == b["dof"][:].tolist()
            assert a["position"].attrs.get("units") == b["position"].attrs.get("units")


@pytest.mark.parametrize("stamp", ["2025-09-10T11:28:39.{:03d}Z", "2025-09-10 11:28:39.{:03d}"])
def test_stamps_of_records_may_be_dates(trajcli, folder, stamp):
    lines = [{"timestamp": stamp.format(20 * k), "q": POSITIONS[k].tolist()} for k in range(40)]
    Path("log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found, _, since = positions_of(trajcli(f"differentiate log.jsonl {CENTRAL}"))
    np.testing.assert_array_equal(found, POSITIONS)
    assert since == int(np.datetime64("2025-09-10T11:28:39", "ns").astype(np.int64))


def test_stamps_since_1970_keep_their_nanoseconds(trajcli, folder):
    lines = [{"stamp": SINCE + STEP * k, "q": POSITIONS[k].tolist()} for k in range(40)]
    Path("log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert positions_of(trajcli(f"differentiate log.jsonl {CENTRAL}"))[2] == SINCE


def test_only_the_last_line_may_be_cut(trajcli, folder):
    Path("log.jsonl").write_text("\n".join(LINES)[:-9])
    result = trajcli(f"differentiate log.jsonl {CENTRAL}")
    np.testing.assert_array_equal(positions_of(result)[0], POSITIONS[:-1])
    assert "log.jsonl breaks off in line 40, which is left out" in result.err
    Path("log.jsonl").write_text("\n".join([*LINES[:7], LINES[7][:-9], *LINES[8:]]))
    trajcli.refuses("differentiate log.jsonl -o no.h5", "log.jsonl", "in line 8")


def test_what_records_lack_is_nan_and_uneven_fields_are_left_out(trajcli, folder):
    records = [record(k) for k in range(40)]
    records[5]["state"] = {"q": [0.1, None, 0.3], "mode": None}
    records[7]["state"] = {"mode": "stop"}
    records[9]["state"] = {**records[9]["state"], "contacts": [1, 2]}
    records[11]["state"] = {**records[11]["state"], "contacts": [1, 2, 3]}
    Path("log.json").write_text(json.dumps(records))
    document = trajcli("inspect log.json --json").document
    counts = {one["name"]: one.get("nan") for one in document["datasets"]}
    assert counts["state/q"] == 4
    assert "state/contacts" not in counts
    result = trajcli(f"differentiate log.json --allow-nonfinite {CENTRAL}", code=0)
    assert "log.json: left out, as their values are no columns: state/contacts" in result.err
    trajcli.refuses("differentiate log.json -o no.h5", "NaN or Inf")


def test_a_matrix_in_a_record_is_nine_numbers(trajcli, folder):
    turns = Rotation.from_rotvec(POSITIONS)
    records = [
        {"t": t, "rot_mat": m.tolist()} for t, m in zip(TIMES, turns.as_matrix(), strict=True)
    ]
    Path("log.json").write_text(json.dumps(records))
    trajcli(f"differentiate log.json {CENTRAL}", code=0)
    with h5py.File("out.h5") as file:
        found = Rotation.from_quat(file["orientation"][0], scalar_first=True)
    assert (found * turns.inv()).magnitude().max() < 1e-7


def test_a_clock_that_an_option_names_is_no_dof_of_records(trajcli, folder):
    made = np.zeros(40, [("uhr", "f8"), ("x", "f8"), ("y", "f8")])
    made["uhr"], made["x"], made["y"] = TIMES, POSITIONS[:, 0], POSITIONS[:, 1]
    with h5py.File("log.h5", "w") as file:
        file["robot/log"] = made
    line = f"differentiate log.h5 --times log.h5:robot/log/uhr {CENTRAL}"
    found, names, _ = positions_of(trajcli(line))
    assert names == ["x", "y"]
    np.testing.assert_array_equal(found, POSITIONS[:, :2])


def test_a_list_of_trajectories_is_no_table(trajcli, folder):
    made = [{"q": POSITIONS[: 20 + k].tolist(), "times": TIMES[: 20 + k].tolist()} for k in (0, 3)]
    Path("log.json").write_text(json.dumps(made))
    trajcli("differentiate log.json:*/q --method central -o out.h5", code=0)
    with h5py.File("out.h5") as file:
        for k, one in enumerate(made):
            np.testing.assert_array_equal(file[f"{k}/q/position"], one["q"]) if (
                f"{k}/q" in file
            ) else np.testing.assert_array_equal(file[f"{k}/position"], one["q"])


def test_episodes_of_records_are_trajectories(trajcli, folder):
    records = [{"episode_index": k // 20, **record(k % 20)} for k in range(40)]
    Path("log.jsonl").write_text("\n".join(map(json.dumps, records)))
    trajcli(f"differentiate log.jsonl {CENTRAL}", code=0)
    with h5py.File("out.h5") as file:
        assert file["position"].shape == (2, 20, 3)


# -- ros2 topic echo -------------------------------------------------------------------------------
def echo(k: int, order: tuple[int, ...] = (0, 1, 2), joints=JOINTS) -> str:
    sec, nanosec = divmod(SINCE + STEP * k, 10**9)

    def block(values) -> str:
        return "".join(f"- {x}\n" for x in values)

    return (
        f"header:\n  stamp:\n    sec: {sec}\n    nanosec: {nanosec}\n  frame_id: ''\nname:\n"
        + block(joints[i] for i in order)
        + "position:\n"
        + block(repr(float(POSITIONS[k, i])) for i in order)
        + "velocity: []\neffort:\n"
        + block([".nan"] * len(order))
    )


@pytest.fixture
def stream() -> str:
    pytest.importorskip("yaml")
    return "".join(echo(k, (0, 1, 2) if k % 3 else (2, 0, 1)) + "---\n" for k in range(40))


def test_messages_of_an_echo_are_rows_at_their_stamps(trajcli, folder, stream):
    Path("js.yaml").write_text(stream)
    found, names, since = positions_of(trajcli(f"differentiate js.yaml {CENTRAL}"))
    assert (names, since) == (["wrist", "shoulder", "elbow"], SINCE)
    np.testing.assert_array_equal(found[:, [1, 2, 0]], POSITIONS)
    trajcli(f"differentiate js.yaml:position --dofs elbow {CENTRAL}", code=0)


@pytest.mark.parametrize("left", [5, 20, 60, 130, 180])
def test_a_last_message_that_is_cut_is_left_out(trajcli, folder, stream, left):
    Path("js.yaml").write_text(stream + echo(0)[:left])
    result = trajcli(f"differentiate js.yaml {CENTRAL}")
    assert len(positions_of(result)[0]) == 40
    assert "js.yaml breaks off in its last document, which is left out" in result.err


def test_a_stream_may_begin_with_the_mark_and_end_without(trajcli, folder, stream):
    Path("js.yaml").write_text("---\n" + stream.removesuffix("---\n"))
    result = trajcli(f"differentiate js.yaml {CENTRAL}")
    assert len(positions_of(result)[0]) == 40
    assert "breaks off" not in result.err


@pytest.mark.parametrize("head", ["", "---\n", "# waypoints\n---\n"])
def test_a_list_needs_no_line_break_at_its_end(trajcli, folder, head):
    pytest.importorskip("yaml")
    Path("w.yaml").write_text(f"{head}- [0, 0]\n- [1, 0.3]\n- [2, 0.1]")
    result = trajcli("export w.yaml --rate 10 -o w.csv")
    assert len(Path("w.csv").read_text().splitlines()) == 4
    assert "breaks off" not in result.err


def test_joints_published_in_turns_are_separate_arrays(trajcli, folder, stream):
    other = ["left", "right"]
    text = "".join(f"{echo(k)}---\n{echo(k, (0, 1), other)}---\n" for k in range(40))
    Path("js.yaml").write_text(text)
    for number, count in (("0", 3), ("1", 2)):
        result = trajcli(f"differentiate js.yaml:{number}/position {CENTRAL}")
        found, names, _ = positions_of(result)
        assert names == (JOINTS, other)[int(number)]
        np.testing.assert_array_equal(found, POSITIONS[:, :count])


# -- compound types --------------------------------------------------------------------------------
def rows(dated: bool = False) -> np.ndarray:
    """What a logger in C++ writes: padded, with fields in fields, and of both byte orders."""
    stamp = np.dtype([("sec", "<u4"), ("nanosec", ">u4")])
    kind = [("stamp", "M8[us]" if dated else stamp), ("q", ">f8", (3,)), ("joint_0", "<f4"),
            ("joint_1", "<f4"), ("ok", "?"), ("pose", [("R", "<f8", (3, 3))])]  # fmt: skip
    made = np.zeros(40, np.dtype(kind, align=True))
    stamps = SINCE // 1000 * 1000 + STEP * np.arange(40)
    if dated:
        made["stamp"] = stamps.astype("M8[ns]")
    else:
        made["stamp"]["sec"], made["stamp"]["nanosec"] = np.divmod(stamps, 10**9)
    made["q"], made["joint_0"], made["joint_1"] = POSITIONS, POSITIONS[:, 0], POSITIONS[:, 1]
    made["pose"]["R"] = np.eye(3)
    return made


@pytest.mark.parametrize("storage", [{}, {"chunks": (7,), "compression": "gzip"}])
def test_compound_datasets_of_hdf5(trajcli, folder, storage):
    with h5py.File("log.h5", "w") as file:
        file.create_dataset("robot/log", data=rows(), **storage)
        file["robot/log"].attrs["note"] = "arm"
    for source in ("log.h5", "log.h5:robot/log", "log.h5:robot/log/q", "log.h5:q"):
        found, _, since = positions_of(trajcli(f"differentiate {source} {CENTRAL}"))
        np.testing.assert_array_equal(found, POSITIONS)
        assert since == SINCE // 1000 * 1000
    for dataset in ("joint", "joint_0,joint_1", "joint_*"):
        result = trajcli(f"differentiate log.h5:robot/log/{dataset} {CENTRAL}")
        found, names, _ = positions_of(result)
        np.testing.assert_array_equal(found, POSITIONS[:, :2].astype("f4"))
        assert names == ["joint_0", "joint_1"]
    trajcli.refuses("differentiate log.h5:robot/log/nix -o no.h5", "no such dataset")


def test_compound_datasets_have_the_rate_next_to_them(trajcli, folder):
    with h5py.File("log.h5", "w") as file:
        file["log"] = rows()[["q", "ok"]].copy()
        file["log"].attrs["rate"] = 50.0
    np.testing.assert_array_equal(
        positions_of(trajcli(f"differentiate log.h5 {CENTRAL}"))[0], POSITIONS
    )


@pytest.mark.parametrize("dated", [False, True])
@pytest.mark.parametrize("name", ["log.npy", "log.npz", "packed.npz"])
def test_structured_arrays_of_numpy(trajcli, folder, name, dated):
    if name.endswith("npy"):
        np.save(name, rows(dated))
    else:
        (np.savez if name == "log.npz" else np.savez_compressed)(name, log=rows(dated))
    field = "q" if name.endswith("npy") else "log/q"
    for source in (name, f"{name}:{field}"):
        found, _, since = positions_of(trajcli(f"differentiate {source} {CENTRAL}"))
        np.testing.assert_array_equal(found, POSITIONS)
        assert since == SINCE // 1000 * 1000


def test_records_by_trajectory_and_row_are_a_batch(trajcli, folder):
    made = np.zeros((4, 40), [("q", "f8", (3,)), ("t", "f8")])
    made["q"], made["t"] = POSITIONS + np.arange(4)[:, None, None], TIMES
    np.savez("log.npz", log=made)
    trajcli(f"differentiate log.npz:log/q {CENTRAL}", code=0)
    with h5py.File("out.h5") as file:
        np.testing.assert_array_equal(file["position"], made["q"])


def test_columns_of_records_of_several_groups_are_dofs_of_each(trajcli, folder):
    with h5py.File("log.h5", "w") as file:
        for k in range(3):
            file[f"demo_{k}/log"] = rows()[k:]
    for dataset in ("joint_0,joint_1", "joint_*"):
        trajcli(f"differentiate log.h5:demo_*/log/{dataset} {CENTRAL}", code=0)
        with h5py.File("out.h5") as file:
            for k in range(3):
                expected = POSITIONS[k:, :2].astype("f4")
                np.testing.assert_array_equal(file[f"demo_{k}/log/position"], expected)


# -- MATLAB ----------------------------------------------------------------------------------------
def test_struct_arrays_of_matlab_are_rows(trajcli, folder):
    scipy = pytest.importorskip("scipy.io")
    for column in (False, True):
        log = np.zeros((1, 40), [("t", object), ("q", object), ("mode", object)])
        for k in range(40):
            q = POSITIONS[k][:, None] if column else POSITIONS[k]
            log[0, k] = TIMES[k], q, "run"
        scipy.savemat("log.mat", {"log": log})
        for source in ("log.mat", "log.mat:log/q"):
            found, _, _ = positions_of(trajcli(f"differentiate {source} {CENTRAL}"))
            np.testing.assert_array_equal(found, POSITIONS)


@pytest.mark.parametrize("form", ["array", "structure", "signals"])
def test_outputs_of_simulink_are_at_the_times_of_tout(trajcli, folder, form):
    scipy = pytest.importorskip("scipy.io")
    signal = {"values": POSITIONS, "dimensions": 3.0, "label": "q", "blockName": "arm/Out1"}
    names = ["values", "dimensions", "label", "blockName"]
    signals = np.zeros((1, 3), [(name, object) for name in names])
    for k in range(3):
        signals[0, k] = POSITIONS[:, k : k + 1], 1.0, f"q{k}", "arm/Out1"
    empty = np.zeros((0, 0))
    yout = {"array": POSITIONS, "structure": {"time": empty, "signals": signal},
            "signals": {"time": empty, "signals": signals}}[form]  # fmt: skip
    scipy.savemat("out.mat", {"tout": TIMES[:, None], "yout": yout})
    source = "out.mat"
    if form == "signals":
        source += ":" + ",".join(f"yout/signals/{k}/values" for k in range(3))
    found, _, _ = positions_of(trajcli(f"differentiate {source} {CENTRAL}"))
    np.testing.assert_array_equal(found, POSITIONS)
