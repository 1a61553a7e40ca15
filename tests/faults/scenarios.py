"""Commands at whose every change of a file something goes wrong, and what leads to them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np


@dataclass(frozen=True)
class Scenario:
    """A command line, what it writes, and the commands that run before it."""

    line: str
    out: str = "out.h5"
    before: tuple[str, ...] = ()

    @property
    def again(self) -> str:
        """The command that is run afterwards."""
        return self.line if "--overwrite" in self.line else f"{self.line} --overwrite"


_RUN = "integrate in.npy --start zero --dt 0.02"
_OLD = "integrate in.npy --start zero --dt 0.02 --mode jerk -o out.h5"
_DEMOS = "integrate demos.h5 --start zero --dt 0.02"
_SHARDS = tuple(f"{_RUN} -o out.h5 --shard {k}/2" for k in range(2))

SCENARIOS = {
    "plain": Scenario(f"{_RUN} --joints a,b -o out.h5"),
    "overwrite": Scenario(f"{_RUN} -o out.h5 --overwrite", before=(_OLD,)),
    "groups": Scenario(f"{_DEMOS} -o out.h5"),
    "npz": Scenario(f"{_RUN} -o out.npz", "out.npz"),
    "shard": Scenario(_SHARDS[0], "out.h5.parts/00000-of-00002.h5"),
    "merge": Scenario("merge out.h5", before=_SHARDS),
    "export": Scenario("export in.npy -o out.csv", "out.csv"),
}


def write_inputs(folder: Path) -> None:
    """The files that the commands read."""
    random = np.random.default_rng(0)
    np.save(folder / "in.npy", random.standard_normal((8, 6, 2)).astype("f4"))
    with h5py.File(folder / "demos.h5", "w") as file:
        for k, length in enumerate((5, 3, 5, 9)):
            actions = random.standard_normal((length, 2)).astype("f4")
            file[f"data/demo_{k}/actions"] = actions
    for path in folder.rglob("*"):
        os.utime(path, ns=(0, 0))
