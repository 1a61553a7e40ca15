"""What export adds to a data set that LeRobot wrote is read by LeRobot: v3, or v2.1 by its 0.3."""

from __future__ import annotations

import inspect

import h5py
import numpy as np
import pytest

LENGTHS = (7, 4, 9)


@pytest.mark.parametrize("dofs", ["0:2", "1"])
def test_lerobot_reads_the_features_of_a_copy(tmp_path, monkeypatch, dofs):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    dataset = pytest.importorskip("lerobot.datasets.lerobot_dataset").LeRobotDataset
    from trajcli.cli import main

    monkeypatch.chdir(tmp_path)
    feature = {"dtype": "float32", "shape": (2,), "names": ["shoulder", "elbow"]}
    features = {"action": feature, "observation.state": feature}
    made = dataset.create("me/set", 20, features, root=tmp_path / "set", use_videos=False)
    random, named = np.random.default_rng(0), "task" in inspect.signature(made.add_frame).parameters
    for length in LENGTHS:
        for _ in range(length):
            frame = {name: random.random(2, dtype="f4") for name in features}
            made.add_frame(frame, task="reach") if named else made.add_frame(frame | {"task": "x"})
        made.save_episode()
    if hasattr(made, "finalize"):
        made.finalize()
    integrate = f"integrate set --mode clique --start zero --dofs {dofs} -o out.h5"
    for line in (integrate, "export out.h5 --lerobot set -o out"):
        assert main(line.split()) == 0
    read = dataset("me/out", root=tmp_path / "out")
    assert len(read) == sum(LENGTHS)
    with h5py.File("out.h5") as file:
        groups = [file.get(f"episode_{k:06d}", file)[f"episode_{k}"] for k in range(3)]
        for name in ("position", "velocity", "acceleration", "jerk"):
            want = np.concatenate([g[name][:n] for g, n in zip(groups, LENGTHS, strict=True)])
            got = np.stack([read[k][f"trajcli.{name}"].numpy() for k in range(len(read))])
            np.testing.assert_array_equal(got.reshape(want.shape), want)
            stats = read.meta.stats[f"trajcli.{name}"]
            np.testing.assert_allclose(stats["mean"], want.mean(0, "f8"), rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(stats["max"], want.max(0))
            names = read.meta.features[f"trajcli.{name}"]["names"]
            assert names == ["shoulder", "elbow"][-want.shape[1] :]
