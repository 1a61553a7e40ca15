"""Warnings of differentiate about what the smoothing spline chose, each where it helps alone."""

from __future__ import annotations

import numpy as np
import pytest

TIMES = np.arange(400) * 0.01
RANDOM = np.random.default_rng(11)
MOTION = np.sin(2 * np.pi * np.outer(TIMES, [0.5, 0.8])) + 0.1
WHITE = RANDOM.normal(0.0, 0.01, (400, 2))


def correlated() -> np.ndarray:
    noise = WHITE.copy()
    for row in range(1, 400):
        noise[row] += 0.7 * noise[row - 1]
    return noise


def quantised(step: float) -> np.ndarray:
    """The first dof creeps, by less than a step of the encoder in many rows."""
    rows = MOTION + WHITE
    rows[:, 0] = np.round((0.3 * np.sin(TIMES) + 0.1 * TIMES) / step) * step
    return rows


def outliers(share: float) -> np.ndarray:
    rows = MOTION + WHITE
    which = RANDOM.choice(400, int(400 * share), replace=False)
    rows[which, 0] += RANDOM.choice([-3.0, 3.0], len(which))
    return rows


def missing(rows: int) -> np.ndarray:
    values = MOTION + WHITE
    values[100 : 100 + rows, 0] = np.nan
    return values


KINDS = {
    "gaps": "gaps longer than half a period",
    "outliers": "would be outliers",
    "few rows": "rows are few",
    "stairs": "single steps of the encoder",
    "correlation": "is correlated",
}
CASES = {
    "white noise": (lambda: MOTION + WHITE, "", None),
    "no noise": (lambda: MOTION, "", None),
    "a short gap": (lambda: missing(5), "--allow-nonfinite", None),
    "a long gap": (lambda: missing(80), "--allow-nonfinite", "gaps"),
    "some outliers": (lambda: outliers(0.02), "--robust", None),
    "many outliers": (lambda: outliers(0.2), "--robust", "outliers"),
    "30 rows": (lambda: (MOTION + WHITE)[:30], "", None),
    "29 rows": (lambda: (MOTION + WHITE)[:29, :1], "", "few rows"),
    "29 rows and a bandlimit": (lambda: (MOTION + WHITE)[:29], "--bandlimit 4", None),
    "small steps": (lambda: quantised(1e-3), "", None),
    "large steps": (lambda: quantised(0.1), "", "stairs"),
    "correlated noise": (lambda: MOTION + np.stack([correlated()[:, 0], WHITE[:, 1]], 1), "",
                         "correlation"),
    "correlated noise and a bandlimit": (lambda: MOTION + correlated(), "--bandlimit 3", None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_warning_names_the_dof_where_the_choice_is_to_be_doubted(trajcli, folder, case):
    make, words, kind = CASES[case]
    rows = make()
    np.savez("in.npz", position=rows[None], dt=0.01)
    result = trajcli(f"differentiate in.npz {words} -o out.h5 --json")
    assert result.code == 0, result.err
    notes = result.document["notes"]
    assert [k for k, text in KINDS.items() if any(text in note for note in notes)] == (
        [kind] if kind else []
    )
    assert all(note.startswith("dof 0: ") for note in notes)
