"""Which rows are a trajectory: episodes one behind the other, padding, patterns and axes, in every
format and for every command."""

from __future__ import annotations

import json
from typing import Any

import h5py
import numpy as np
import pytest

DT = 0.05
COUNTS = np.array([40, 55, 35])
ENDS = np.cumsum(COUNTS)
T = DT * np.arange(55)
CURVES = [np.stack([np.sin(T[:n] + 5 * k), 0.5 * T[:n] + k], 1) for k, n in enumerate(COUNTS)]
FLAT = np.concatenate(CURVES)
PADDED = np.zeros((3, 55, 2))
for _k, _curve in enumerate(CURVES):
    PADDED[_k, : len(_curve)] = _curve
REAL = np.arange(55) < COUNTS[:, None]
LAST = np.isin(np.arange(len(FLAT)), ENDS - 1)


def write(kind: str, **arrays: Any) -> str:
    """Writes arrays to a file of this kind; returns its name."""
    name, named = f"in.{kind}", {key: np.asarray(value) for key, value in arrays.items()}
    if kind == "npz":
        np.savez(name, **named)
    elif kind == "h5":
        with h5py.File(name, "w") as file:
            for key, value in named.items():
                file[key] = value
    elif kind == "zarr":
        root = pytest.importorskip("zarr").open_group(name, mode="w")
        for key, value in named.items():
            root.create_array(key, data=value)
    elif kind == "mat":
        pytest.importorskip("scipy.io").savemat(name, named)
    elif kind == "pt":
        torch = pytest.importorskip("torch", "2.6")
        torch.save({key: torch.from_numpy(value) for key, value in named.items()}, name)
    elif kind == "json":
        with open(name, "w") as file:
            json.dump({key: value.tolist() for key, value in named.items()}, file)
    elif kind == "parquet":
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        columns = {k: list(v) if v.ndim == 2 else v for k, v in named.items()}
        parquet.write_table(arrow.table(columns), name)
    return name


def arrays(path: str, ending: str) -> list[np.ndarray]:
    """Returns an array of every trajectory of an output, the first trajectory first."""
    names: list[str] = []
    with h5py.File(path) as file:
        file.visit(names.append)
        found = [file[name][:] for name in sorted(names) if name.endswith(ending)]
    return [row for x in found for row in x.reshape(-1, *x.shape[-2:])]


def differentiated(trajcli, source: str, more: str = "") -> tuple[list[np.ndarray], str]:
    line = f"differentiate {source} --rate 20 --method central -o out.h5 --overwrite {more}"
    result = trajcli.ok(line)
    return arrays("out.h5", "velocity"), result.err


def are_the_curves(found: list[np.ndarray]) -> bool:
    """Whether these are the velocities of the three curves, each differentiated alone."""
    expected = [np.gradient(curve, DT, axis=0) for curve in CURVES]
    same = [x.shape for x in found] == [x.shape for x in CURVES]
    return same and all(np.abs(a - b)[1:-1].max() < 2e-3
                        for a, b in zip(found, expected, strict=True))  # fmt: skip


FLAT_STATEMENTS: dict[str, Any] = {
    "lengths": COUNTS, "traj_lengths": COUNTS, "Episode_Lengths": COUNTS, "episode_ends": ENDS,
    "split_points": np.r_[0, ENDS], "episode_starts": ENDS[:-1],
    "episode_index": np.repeat([2, 4, 7], COUNTS),
    "terminals": LAST, "timeouts": LAST.astype(np.uint8), "dones": LAST.astype(float)[:, None],
}  # fmt: skip


@pytest.mark.parametrize("name", FLAT_STATEMENTS)
def test_rows_one_behind_the_other_are_episodes_by_whatever_says_so(trajcli, folder, name):
    source = write("npz", **{"s": FLAT, name: FLAT_STATEMENTS[name]})
    found, said = differentiated(trajcli, f"{source}:s")
    assert are_the_curves(found)
    assert name in said


FORMATS = {"h5": "traj_lengths", "zarr": "terminals", "mat": "episode_index", "pt": "traj_lengths",
           "json": "terminals", "parquet": "episode_index"}  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
def test_episodes_and_a_mask_are_known_in_every_format(trajcli, folder, kind):
    source = write(kind, position=FLAT, **{FORMATS[kind]: FLAT_STATEMENTS[FORMATS[kind]]})
    assert are_the_curves(differentiated(trajcli, source)[0])
    if kind != "parquet":  # a table has one value for each row
        assert are_the_curves(differentiated(trajcli, write(kind, position=PADDED, mask=REAL))[0])


def test_a_csv_column_of_ends_splits_the_rows(trajcli, folder):
    rows = np.c_[np.arange(len(FLAT)) * DT, FLAT, LAST]
    np.savetxt("in.csv", rows, "%.17g", ",", header="t,q0,q1,done", comments="")
    assert are_the_curves(differentiated(trajcli, "in.csv")[0])


COMMANDS = {
    "score": "", "check": "", "inspect": "", "export": "-o o.csv", "plot": "-o o.png",
    "resample": "--to 40 -o o.h5", "fit": "--knots 8 -o o.h5",
    "integrate": "--mode velocity --start zero -o o.h5",
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("form", ["flat", "mask", "pattern"])
def test_every_command_sees_the_same_three_trajectories(trajcli, folder, command, form):
    source, name = "in.npz", "actions" if command == "integrate" else "position"
    if form == "flat":
        write("npz", dt=DT, traj_lengths=COUNTS, **{name: FLAT})
    elif form == "mask":
        write("npz", dt=DT, mask=REAL, **{name: PADDED})
    else:
        write("npz", dt=DT, **{f"demo_{k}": curve for k, curve in enumerate(CURVES)})
        source = "in.npz:demo_*"
    document = trajcli.ok(f"{command} {source} {COMMANDS[command]} --rate 20 --json").document
    if command == "score":
        assert len(document["trajectories"]) == 3
    elif command == "inspect":
        assert document["trajectories"]["count"] == 3
    elif command == "check":
        assert {found["trajectories"] for found in document["checks"]} == {3}
    elif command == "export":
        assert len((folder / "o.csv").read_text().splitlines()) == len(FLAT) + 1
    elif command != "plot":
        assert len(arrays("o.h5", "actions" if command == "fit" else "time")) == 3


@pytest.mark.parametrize(
    ("kind", "below"),
    [("npz", ""), ("npz", "/position"), ("h5", "/position"), ("zarr", "/position"), ("mat", "")],
)
def test_a_pattern_names_the_trajectories_of_one_run(trajcli, folder, kind, below):
    source = write(kind, **{f"demo_{k}{below}": curve for k, curve in enumerate(CURVES)})
    assert are_the_curves(differentiated(trajcli, f"{source}:demo_*")[0])
    document = trajcli.ok(f"inspect {source}:demo_* --json").document
    assert document["trajectories"]["count"] == 3
    document = trajcli.ok(f"score {source}:demo_* --rate 20 --json").document
    assert [row["trajectory"] for row in document["trajectories"]] == ["demo_0", "demo_1", "demo_2"]


def test_a_pattern_takes_no_times_and_mixes_no_quantities(trajcli, folder):
    write("npz", **{f"q_{k}": curve for k, curve in enumerate(CURVES)}, times=T, dt=DT)
    assert len(trajcli.ok("score in.npz:* --rate 20 --json").document["trajectories"]) == 3
    write("npz", position=CURVES[0], velocity=CURVES[0])
    assert len(trajcli.ok("score in.npz:* --rate 20 --json").document["trajectories"]) == 1


@pytest.mark.parametrize("name", ["data/robot0_eef_pos", "data/gripper"])
def test_any_array_of_a_replay_buffer_is_its_episodes(trajcli, folder, name):
    source = write("zarr", **{"meta/episode_ends": ENDS, name: FLAT, "data/width": FLAT[:, :1]})
    assert are_the_curves(differentiated(trajcli, f"{source}:{name}")[0])
    trajcli.ok(f"inspect {source}")


def test_episodes_have_their_own_rows_of_the_times_beside_them(trajcli, folder):
    times = np.concatenate([10.0 * k + 2 * T[:n] for k, n in enumerate(COUNTS)])
    source = write("npz", s=FLAT, times=times, episode_ends=ENDS)
    trajcli.ok(f"differentiate {source}:s --method central -o out.h5")
    assert are_the_curves([2 * x for x in arrays("out.h5", "velocity")])


def test_episodes_have_their_own_start_state_and_step(trajcli, folder):
    start, dt = np.array([[0.0, 1], [5, 6], [7, 8]]), np.array([0.1, 0.2, 0.4])
    write("npz", actions=FLAT, lengths=COUNTS, start_position=start, dt=dt)
    trajcli.ok("integrate in.npz --mode velocity -o out.h5")
    found = arrays("out.h5", "position")
    np.testing.assert_array_equal([x[0] for x in found], start)
    for x, curve, step, first in zip(found, CURVES, dt, start, strict=True):
        np.testing.assert_allclose(x[1], first + step * curve[0])


@pytest.mark.parametrize(
    ("beside", "parts"),
    [
        ({"lengths": COUNTS, "episode_ends": ENDS - [1, 0, 0]}, ("lengths", "episode_ends")),
        ({"traj_lengths": COUNTS, "episode_lengths": COUNTS[:2]}, ("episode_lengths",)),
        ({"episode_index": np.arange(130) // 10 % 2}, ("episode_index", "sort")),
    ],
)
def test_statements_that_disagree_are_an_error_that_names_them(trajcli, folder, beside, parts):
    source = write("npz", s=FLAT, **beside)
    for command in ("differentiate {} -o out.h5", "score {}", "check {}"):
        trajcli.refuses(command.format(f"{source}:s --rate 20"), *parts)


def test_what_does_not_fit_the_rows_is_named(trajcli, folder):
    source = write("npz", s=FLAT, traj_lengths=COUNTS[:2])
    assert "traj_lengths" in differentiated(trajcli, f"{source}:s")[1]


MASKS: dict[str, Any] = {
    "mask": REAL, "valid": REAL.astype(np.uint8), "action_is_pad": ~REAL, "is_pad": ~REAL,
    "padding_mask": ~REAL, "pad_mask": REAL, "lengths": COUNTS, "episode_lengths": COUNTS,
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_padded_rows_are_left_out_by_lengths_or_a_mask(trajcli, folder, name):
    source = write("npz", **{"position": PADDED, name: MASKS[name]})
    assert are_the_curves(differentiated(trajcli, source)[0])
    if len(np.shape(MASKS[name])) == 2:  # of one trajectory
        source = write("npz", **{"position": PADDED[0], name: MASKS[name][0]})
        assert differentiated(trajcli, source)[0][0].shape == CURVES[0].shape


def test_a_mask_with_holes_is_an_error_that_names_it(trajcli, folder):
    holes = REAL.copy()
    holes[1, 7] = False
    source = write("npz", position=PADDED, mask=holes, dt=DT)
    trajcli.refuses(f"differentiate {source} -o out.h5", "in.npz:mask, trajectory 1")
    assert "in.npz:mask, trajectory 1" in trajcli.ok(f"inspect {source}").err
    source = write("npz", position=PADDED, mask=REAL, lengths=COUNTS - 1, dt=DT)
    trajcli.refuses(f"score {source}", "in.npz:mask", "in.npz:lengths")


@pytest.mark.parametrize(("kind", "many"), [("npz", 1), ("h5", 1), ("h5", 410)])
def test_rows_of_nan_at_the_ends_are_padding_that_check_fails(trajcli, folder, kind, many):
    padded = np.where(REAL[..., None], PADDED, np.nan)
    source = write(kind, position=np.tile(padded, (many, 1, 8 if many > 1 else 1)), dt=DT)
    assert "padding" in trajcli.fails(f"check {source}").out
    if many == 1:
        found, said = differentiated(trajcli, source)
        assert are_the_curves(found)
        assert "NaN" in said
        trajcli.ok(f"resample {source} --to 40 -o o.h5")
        trajcli.ok(f"check {write(kind, position=padded, dt=DT, lengths=COUNTS)}")


BODIES = np.stack([np.stack([0.5 * T + b, np.sin(T), 0 * T], 1) for b in range(6)])  # [B, T, D]
AXES = {
    "TBD": (BODIES.transpose(1, 0, 2), {}),
    "BDT": (np.tile(BODIES, (1, 1, 1)).transpose(0, 2, 1), {}),
    "DBT": (BODIES[:1].transpose(2, 0, 1), {}),
    "DTB": (BODIES.transpose(2, 1, 0), None),
    "DT": (BODIES[0].T, {}),
    "td": (BODIES[0], None),
}


@pytest.mark.parametrize("axes", AXES)
def test_axes_say_which_axis_is_which(trajcli, folder, axes):
    values, warned = AXES[axes]
    kind = {"TBD": "zarr", "DTB": "mat", "DT": "npz"}.get(axes, "npy")
    source = f"{write(kind, s=values)}:s" if kind != "npy" else "in.npy"
    np.save("in.npy", values)
    count = 6 if "B" in axes and axes != "DBT" else 1
    found, said = differentiated(trajcli, source, f"--axes {axes}")
    assert "warning" not in said
    np.testing.assert_allclose(np.stack(found)[..., 0], 0.5, atol=1e-9)
    assert np.stack(found).shape == (count, 55, 3)
    if warned is not None:
        for line in (f"inspect {source}", f"score {source} --rate 20"):
            result = trajcli(line)
            assert f"--axes {axes}" in result.out + result.err


@pytest.mark.parametrize("axes", ["TBD", "DT"])
def test_a_file_whose_times_are_of_another_axis_is_refused(trajcli, folder, axes):
    source = write("npz", position=AXES[axes][0], times=T)
    trajcli.refuses(f"differentiate {source} -o out.h5", "[55]", f"--axes {axes}")
    trajcli.ok(f"differentiate {source} --axes {axes} -o out.h5")


@pytest.mark.parametrize("beside", [{"qpos": BODIES[0][:, :2]}, {"joint_names": list("abcdef")}])
def test_what_lies_beside_tells_axes_without_looking_at_values(trajcli, folder, beside):
    noise = np.random.default_rng(0).normal(size=(55, 6, 3))
    with h5py.File("in.h5", "w") as file:
        file["xpos"] = noise
        for name, value in beside.items():
            file[name] = value
    assert "--axes TBD" in trajcli("score in.h5:xpos --rate 20").out
    trajcli.refuses("score in.h5:xpos --rate 20 --axes TB", "--axes")


def test_indices_that_may_be_of_episodes_are_pointed_out(trajcli, folder):
    np.savez("in.npz", states=np.cumsum(np.ones((130, 2)), 0), indices=[40, 95], dt=0.02)
    assert "in.npz:indices may be" in trajcli.ok("score in.npz:states").out
    np.savez("in.npz", states=np.cumsum(np.ones((130, 2)), 0), indices=[95, 40], dt=0.02)
    assert "indices" not in trajcli.ok("score in.npz:states").out


def test_batches_of_trajectories_get_no_warning_of_axes(trajcli, folder):
    steps = np.random.default_rng(0).normal(size=(200, 20, 7))
    walks = np.cumsum(steps, 1)
    for values in (steps, walks, walks[..., :3] + 1e-3 * steps[..., :3]):
        np.save("in.npy", values)
        assert "--axes" not in trajcli("score in.npy --rate 20").out


def test_a_structure_with_time_is_read_at_its_times(trajcli, folder):
    pytest.importorskip("scipy.io").savemat("sim.mat", {
        "out": {"time": T[:, None], "signals": {"values": BODIES[0], "dimensions": 3.0}}
    })  # fmt: skip
    trajcli.ok("differentiate sim.mat --method central -o out.h5")
    np.testing.assert_allclose(arrays("out.h5", "velocity")[0][:, 0], 0.5, atol=1e-9)
