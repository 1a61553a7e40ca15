"""How much memory a run takes: what TRAJCLI_MEMORY bounds, and the size of every kind of block.

``benchmarks/blocks.py`` measures how long commands take with other sizes. Where more is as fast,
the least is taken. Figures are of two shared cores of an EPYC, Python 3.11, trajectories [64, 7].
"""

from __future__ import annotations

import os
import re

from trajcli.errors import UsageError

LEAST_MEMORY = 64 << 20
"""Readers may always hold so many decompressed bytes: a chunk of a common file fits."""
EAGER_BYTES = 8 << 20
"""Smaller arrays of steps, stamps and states are read as a whole, larger ones block by block."""

# integrate and differentiate, by backend
BLOCK_VALUES = {
    "native": 1 << 21, "torch": 1 << 17, "triton": 1 << 23, "torch on a device": 1 << 22
}  # fmt: skip
"""Actions that are computed at once. Fewer than 2²⁰ values of ``native`` would have one thread."""
BYTES_PER_VALUE = {"native": 64, "torch": 512, "triton": 64, "torch on a device": 512}
"""Working memory for each action: a block in, four out; torch keeps some 60 float64 on the way.
A device has as much of its own."""
BYTES_PER_STEP = 64
"""For each row of trajectories with steps of their own: the step and the sum that is its time."""
SHARE_OF_FREE = 0.8
"""Of a device's free memory, what blocks are to take."""
TORCH_VALUES = 1 << 19
"""Values of an output that torch computes at once, so that intermediate values stay in the cache
of a processor or a device."""
NATIVE_TILE = 1 << 14
"""Values of each output that a compiled kernel computes before the next output's. To a file it
writes 32 bytes for each of them at once: writing 64 KiB at a time takes up to 1.7 times as long."""
ROTATION_VALUES = 1 << 16
"""Values of a temporary array of windows of rotations: 512 KiB; there are some sixty."""

# other commands: bytes of one array at once
READ_BYTES = 1 << 18
"""What views read: with what is computed from it, it fits in the caches."""
CHANGED_BYTES = 1 << 20
"""What resample, retime and fit read. A quarter takes 1.1 times as long, four times as much 0.9 to
1.0, sixteen times as much 1.2 to 2.0: it leaves the processor's caches."""
RESAMPLED_VALUES = 1 << 16
"""Values of new rows that are evaluated at once: a sixteenth takes 1.2 times as long, more is as
fast."""
SCANNED_BYTES = 2 << 20
"""What is only looked through or compared, by diff, inspect and --skip-bad: a quarter takes
as long, four times as much 1.1 times, sixteen times as much 1.5."""
MERGED_BYTES = 4 << 20
"""What merge copies: a quarter takes 0.9 to 1.2 times as long, four times as much 1.1 to 1.4."""
SAMPLED_BYTES, LEAST_SAMPLED_BYTES = 24 << 20, 1 << 20
"""What inspect reads about of a larger file, and at least of each dataset of it."""

# files
MAPPED_BYTES = 1 << 20
"""Smaller arrays are read: mapping would load the megabytes around them."""
TABLE_ROWS, CSV_ROWS = 1 << 16, 1 << 12
"""Rows of tables that are read or written at once, and those of texts."""
CHUNK_BYTES = 4 << 20
"""The size of a compressed chunk: whole trajectories, or rows of one that is larger. Deflate takes
as long with any."""
CHUNK_CACHE = 16 << 20
"""HDF5's cache of each open dataset: a chunk of several MiB is then decompressed once."""
CACHED_CHUNK = 8 << 20
"""The largest decompressed chunk of a Zarr array that is kept."""


def memory_bound() -> int:
    """Returns TRAJCLI_MEMORY in bytes: the working memory of a run, and of decompressed files.

    It is written like 256MiB (the default), 2GB or 1000000. Raises UsageError for anything else.
    """
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
