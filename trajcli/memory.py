"""How much memory a run takes: the bound TRAJCLI_MEMORY, and the size of every kind of block.

``benchmarks/blocks.py`` measures how long commands take with other sizes; of sizes that are equally
fast, the least is taken. Figures are from two shared cores of an EPYC, Python 3.11, trajectories
[64, 7].
"""

from __future__ import annotations

import os
import re

from trajcli.errors import UsageError

LEAST_MEMORY = 64 << 20
"""Decompressed bytes that readers may always hold: a chunk of a common file fits."""
EAGER_BYTES = 8 << 20
"""Smaller arrays of steps, stamps and states are read at once, larger ones block by block."""

# integrate and differentiate, by backend
BLOCK_VALUES = {
    "native": 1 << 21, "torch": 1 << 17, "triton": 1 << 23, "torch on a device": 1 << 22
}  # fmt: skip
"""Actions in a block. Fewer than 2²⁰ values of ``native`` would be computed by one thread."""
BYTES_PER_VALUE = {"native": 64, "torch": 512, "triton": 64, "torch on a device": 512}
"""Working memory for each action: a block in and four out; torch also keeps some 60 float64. A
device needs as much of its own memory."""
BYTES_PER_STEP = 64
"""Working memory for each row of trajectories with their own steps: the step, and its time."""
SHARE_OF_FREE = 0.8
"""The share of a device's free memory that blocks take."""
TORCH_VALUES = 1 << 19
"""Values of an output that torch computes at once: intermediate values stay in the cache of a
processor or a device."""
NATIVE_TILE = 1 << 14
"""Values of one output that a compiled kernel computes before those of the next. To a file it
writes 32 bytes for each at once: writing 64 KiB at a time takes up to 1.7 times as long."""
ROTATION_VALUES = 1 << 16
"""Values of one of the some sixty temporary arrays of windows of rotations: 512 KiB each."""

# other commands: bytes of one array at once
READ_BYTES = 1 << 18
"""Read by views: it fits in the caches, with the results."""
CHANGED_BYTES = 1 << 20
"""Read by resample, retime and fit. A quarter takes 1.1 times as long, four times as much 0.9 to
1.0, and sixteen times as much, which leaves the caches, 1.2 to 2.0."""
RESAMPLED_VALUES = 1 << 16
"""Values of new rows that are evaluated at once: a sixteenth takes 1.2 times as long, more is as
fast."""
SCANNED_BYTES = 2 << 20
"""Scanned or compared by diff, inspect and --skip-bad: a quarter takes as long, four times as much
1.1 times, sixteen times as much 1.5."""
MERGED_BYTES = 4 << 20
"""Copied by merge: a quarter takes 0.9 to 1.2 times as long, four times as much 1.1 to 1.4."""
SAMPLED_BYTES, LEAST_SAMPLED_BYTES = 24 << 20, 1 << 20
"""Read by inspect: about so much of a larger file, and at least so much of each of its datasets."""

# files
MAPPED_BYTES = 1 << 20
"""Smaller arrays are read, not mapped: mapping would load the megabytes around them."""
TABLE_ROWS, CSV_ROWS = 1 << 16, 1 << 12
"""Rows of tables, and of text tables, that are read or written at once."""
CHUNK_BYTES = 4 << 20
"""The size of a compressed chunk: complete trajectories, or rows of a larger one. Deflate takes as
long with any size."""
CHUNK_CACHE = 16 << 20
"""HDF5's cache of each open dataset: a chunk of several MiB is decompressed only once."""
CACHED_CHUNK = 8 << 20
"""The largest decompressed chunk of a Zarr array that stays in memory."""


def memory_bound() -> int:
    """Reads TRAJCLI_MEMORY, like 256MiB, in bytes: the working memory of a run, and of files."""
    text = os.environ.get("TRAJCLI_MEMORY") or "256MiB"
    match = re.fullmatch(r"([0-9.]+(?:E[0-9]+)?) *([KMGT]?)(I?)B?", text.strip().upper())
    try:
        base = 1024 if match and (match[3] or not text.strip().upper().endswith("B")) else 1000
        size = int(float(match[1]) * base ** " KMGT".index(match[2] or " ")) if match else 0
    except (ValueError, OverflowError):
        size = 0
    if size <= 0:
        where, expected = "TRAJCLI_MEMORY", "like 256MiB or 2GB"
        raise UsageError("not a size", where=where, expected=expected, found=repr(text))
    return size
