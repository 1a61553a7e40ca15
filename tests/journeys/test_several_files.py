"""What several files give together is what each of them gives alone, and refused are the same."""

from __future__ import annotations

import itertools
import os
import re

import h5py
import numpy as np
import pytest

ROWS, DOFS = 8, 3
UNEVEN = np.linspace(0.1, 0.2, ROWS)
ARRAYS = ("actions", "position", "velocity", "acceleration", "jerk")


def values(rows=ROWS, batch=2):
    return np.random.default_rng(rows + batch).normal(size=(batch, rows, DOFS))


def stamps(count):
    return {"times": np.arange(count) * 0.1}


FILES = {
    "a": {"dt": 0.1},
    "steps": {"dt": UNEVEN},
    "own_steps": {"dt": np.stack([UNEVEN, 2 * UNEVEN])},
    "own_step": {"dt": np.array([[0.1], [0.2]])},
    "too_many_steps": {"dt": np.full(ROWS + 3, 0.1)},
    "stamps": stamps(ROWS + 1),
    "uneven_stamps": {"times": np.cumsum([0.0, *UNEVEN])},
    "too_few_stamps": stamps(ROWS - 1),
    "too_many_stamps": stamps(ROWS + 2),
    "padded": {"dt": 0.1, "lengths": np.array([ROWS, 5])},
    "longer": {"actions": values(12), **stamps(13)},
    "one": {"actions": values(batch=1), "dt": 0.1},
}


@pytest.fixture
def write(folder):
    """The files, and two groups of unequal length in one."""
    for name, arrays in FILES.items():
        np.savez(name, **{"actions": values(), "start_position": np.ones(DOFS), **arrays})
    with h5py.File("groups.h5", "w") as file:
        for n, rows in enumerate((ROWS, 6)):
            file[f"g{n}/actions"] = values(rows)[n]
            file[f"g{n}/times"] = np.arange(rows + 1) * 0.1
            file[f"g{n}/start/position"] = np.ones(DOFS)
    return sorted(name for name in os.listdir() if name.endswith((".npz", ".h5")))


def trajectories(path):
    """The arrays and times of each trajectory of an output, in the order of their names."""
    with h5py.File(path) as file:
        groups = set()
        file.visit(lambda name: groups.add(os.path.split(name)))
        places = {group for group, name in groups if name in ARRAYS and "start" not in group}
        for place in sorted(places, key=lambda name: list(map(int, re.findall(r"\d+", name)))):
            group = file[f"/{place}"]
            arrays = [group[name][()] for name in ARRAYS if name in group]
            named = ((one, name) for one in (group, file) for name in ("time", "times"))
            time = next((one[name][()] for one, name in named if name in one), np.zeros(1))
            if arrays[0].ndim == 2:
                yield [*arrays, time]
                continue
            for k in range(len(arrays[0])):
                yield [*(array[k] for array in arrays), time if time.ndim == 1 else time[k]]


@pytest.mark.parametrize(
    "line",
    [
        "integrate {} --scheme zoh -o {}",
        "resample {} --to 23 -o {}",
    ],
)
def test_two_files_give_what_each_of_them_gives(trajcli, write, line):
    alone = {}
    for name in write:
        done = trajcli(line.format(name, f"{name}.out.h5")).code == 0
        alone[name] = list(trajectories(f"{name}.out.h5")) if done else None
    refused = [name for name in write if alone[name] is None]
    assert len(refused) in range(2, 8)
    for pair in itertools.product(write, write):
        result = trajcli(line.format(" ".join(pair), "both.h5") + " --overwrite")
        assert result.code == (2 if {*pair} & {*refused} else 0), (pair, result.err)
        if result.code:
            assert any(name in result.err for name in refused), (pair, result.err)
            continue
        both, each = list(trajectories("both.h5")), [*alone[pair[0]], *alone[pair[1]]]
        assert len(both) == len(each), pair
        for one in each:
            same = [k for k, other in enumerate(both) if _equal(one, other)]
            assert same, pair
            both.pop(same[0])


def _equal(one, other):
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-12, atol=1e-12)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("option", ["--dt dt.npy", "--times times.npy"])
def test_steps_that_an_option_names_are_shared_whatever_holds_the_trajectories(
    trajcli, folder, option
):
    actions = np.load("actions.npy")
    steps = np.linspace(0.1, 0.2, actions.shape[1])
    np.save("dt.npy", steps)
    np.save("times.npy", np.cumsum([0.0, *steps]))
    np.save("a.npy", actions[:2])
    np.save("b.npy", actions[2:])
    line = f"integrate {{}} {option} --start zero --cost jerk -o {{}}"
    assert trajcli(line.format("actions.npy", "one.h5")).code == 0
    assert trajcli(line.format("a.npy b.npy", "two.h5")).code == 0
    with h5py.File("one.h5") as one, h5py.File("two.h5") as two:
        assert one["grad/dt"].shape == actions.shape[:2]
        times = two["b/trajectory_0/time" if "time" not in two else "time"]
        np.testing.assert_array_equal(times, one["time"])
        np.testing.assert_allclose(two["grad/dt"], one["grad/dt"], rtol=1e-12)
