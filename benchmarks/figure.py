"""A figure of what `trajcli bench --json` measured: each mode's time over that of plain copies.

trajcli bench --json > kernels.json
python benchmarks/figure.py kernels.json kernels.svg
"""

from __future__ import annotations

import json
import sys
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Okabe and Ito's, told apart by everyone."""


def draw(report: dict[str, Any], target: str) -> None:
    """One panel per direction, a group of bars per mode, a bar per number of dofs."""
    rows = [row for row in report["kernels"] if row["backend"] == "native"]
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    dofs = list(dict.fromkeys(row["dofs"] for row in rows))
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
    for panel, direction in zip(panels, ("forward", "adjoint"), strict=True):
        for k, count in enumerate(dofs):
            found = {
                row["mode"]: row["copies"]
                for row in rows
                if row["dofs"] == count and row["direction"] == direction
            }
            width = 0.8 / len(dofs)
            places = [i + (k - (len(dofs) - 1) / 2) * width for i in range(len(modes))]
            label = f"{count} dof" if count == 1 else f"{count} dofs"
            heights = [found[mode] for mode in modes]
            panel.bar(places, heights, width, color=COLOURS[k % len(COLOURS)], label=label)
        panel.axhline(1.0, color="black", linewidth=1, linestyle="--")
        panel.set_xticks(range(len(modes)), modes)
        panel.set_title(direction)
    panels[0].set_ylabel("time over plain copies")
    panels[1].legend(fontsize=8, ncols=2)
    figure.suptitle(
        f"{report['elements']:.3g} float32 actions, {report['threads']} threads, CPU kernels",
        fontsize=10,
    )
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None} if target.endswith(".svg") else None)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        draw(json.load(file), sys.argv[2])
