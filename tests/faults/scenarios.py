"""Commands at whose every change of a file something goes wrong, and what leads to them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np


@dataclass(frozen=True)
class Scenario:
    """A command line, and those that run before it.

    out: what it writes. stopped: a SIGTERM comes while it writes its blocks; resumes: while the
    last of the commands before it does.
    """

    line: str
    out: str = "out.h5"
    before: tuple[str, ...] = ()
    stopped: bool = False
    resumes: bool = False

    @property
    def resumable(self) -> bool:
        """Whether the command takes --resume."""
        return self.line.startswith("integrate") and "--shard" not in self.line

    def again(self, resume: bool) -> str:
        """The command that is run afterwards."""
        words = self.line.removesuffix(" --resume")
        words += "" if "--overwrite" in words else " --overwrite"
        return f"{words} --resume" if resume else words


_RUN = "integrate in.npy --start zero --dt 0.02 --memory 2kB"
_OLD = "integrate in.npy --start zero --dt 0.02 --mode jerk"
_DEMOS = "integrate demos.h5 --start zero --dt 0.02 --memory 1kB"
_MADE = "integrate in.npy --start zero --dt 0.02 -o made.h5"
_OUTPUTS = {
    "h5": f"{_RUN} -o out.h5",
    "npz": f"{_RUN} -o out.npz",
    "folder": f"{_RUN} -o out",
    "compressed": f"{_RUN} -o out.h5 --compress 1",
    "gradients": f"{_RUN} -o out.h5 --cost jerk --wrt dt --write position",
    "groups": f"{_DEMOS} -o out.h5",
    "groups, compressed": f"{_DEMOS} -o out.h5 --compress 1 --write position",
}


def _scenarios() -> dict[str, Scenario]:
    made = {}
    for name, line in _OUTPUTS.items():
        out = line.split("-o ")[1].split()[0]
        made[name] = Scenario(line, out)
        if name in ("h5", "npz", "folder"):
            old = (f"{_OLD} -o {out}",)
            made[f"{name}, overwritten"] = Scenario(f"{line} --overwrite", out, old)
        made[f"{name}, stopped"] = Scenario(line, out, stopped=True)
        made[f"{name}, resumed"] = Scenario(f"{line} --resume", out, (line,), resumes=True)
    old, again = f"{_OLD} -o out.h5", f"{_RUN} -o out.h5 --overwrite"
    made["resumed, overwritten"] = Scenario(f"{again} --resume", before=(old, again), resumes=True)
    made["durable"] = Scenario(f"{_RUN} -o out.h5 --durable")
    shard, part = f"{_RUN} -o out.h5 --shard", "out.h5.parts/00000-of-00002.h5"
    made["shard"] = Scenario(f"{shard} 0/2", part)
    made["shard, compressed"] = Scenario(f"{shard} 0/2 --compress 1", part)
    made["shard, resumed"] = Scenario(f"{shard} 0/2", part, (f"{shard} 0/2",), resumes=True)
    parts = (f"{shard} 0/2", f"{shard} 1/2")
    made["merge"] = Scenario("merge out.h5", before=parts)
    made["merge, virtual"] = Scenario("merge out.h5 --virtual", before=parts)
    made["merge, overwritten"] = Scenario("merge out.h5 --overwrite", before=(old, *parts))
    made["resample"] = Scenario("resample made.h5 --to 90 -o out.h5", before=(_MADE,))
    made["resample, npz"] = Scenario("resample made.h5 --to 90 -o out.npz", "out.npz", (_MADE,))
    made["retime"] = Scenario("retime made.h5 --limits limits.toml -o out.h5", before=(_MADE,))
    for kind in ("csv", "npz", "h5", "parquet"):
        made[f"export, {kind}"] = Scenario(f"export made.h5 -o out.{kind}", f"out.{kind}", (_MADE,))
    zarr = f"{_RUN} -o out.zarr"
    made["zarr"] = Scenario(zarr, "out.zarr")
    made["zarr, groups"] = Scenario(f"{_DEMOS} -o out.zarr --write position", "out.zarr")
    part = "out.zarr.parts/00000-of-00002.h5"
    made["zarr, shard"] = Scenario(f"{zarr} --shard 0/2", part)
    old_store = (f"{_OLD} -o out.zarr",)
    shards = [f"{zarr} --shard {k}/2" for k in range(2)]
    made["zarr, last shard"] = Scenario(shards[1], "out.zarr", (shards[0],))
    before = (*old_store, f"{shards[0]} --overwrite")
    made["zarr, last shard, overwritten"] = Scenario(f"{shards[1]} --overwrite", "out.zarr", before)
    made["zarr, overwritten"] = Scenario(f"{zarr} --overwrite", "out.zarr", old_store)
    return made


SCENARIOS = _scenarios()


def write_inputs(folder: Path) -> None:
    """The files that the commands read."""
    random = np.random.default_rng(0)
    np.save(folder / "in.npy", random.standard_normal((8, 6, 2)).astype("f4"))
    with h5py.File(folder / "demos.h5", "w") as file:
        for k, length in enumerate((5, 3, 5, 9)):
            actions = random.standard_normal((length, 2)).astype("f4")
            file[f"data/demo_{k}/actions"] = actions
    (folder / "limits.toml").write_text("[velocity]\nupper = [0.01, 0.01]\n")
    for path in folder.rglob("*"):
        os.utime(path, ns=(0, 0))
