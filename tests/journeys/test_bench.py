"""trajcli bench, as typed."""

from __future__ import annotations

import re

import pytest


def test_every_mode_and_backend_is_measured_beside_copies(trajcli, folder):
    before = sorted(folder.iterdir())
    words = "--elements 20000 --dofs 1,7 --rounds 1 --modes jerk,central,bspline,teleport"
    result = trajcli(f"bench {words} --json")
    assert result.code == 0, result.err
    report = result.document
    present = {"native", "torch"} - set(report["backends_absent"])
    found = {(r["mode"], r["dofs"], r["backend"], r["direction"]) for r in report["kernels"]}
    assert found == {
        (mode, dofs, backend, direction)
        for mode in ("jerk", "central", "bspline", "teleport")
        for dofs in (1, 7)
        for backend in present
        for direction in ("forward", "adjoint")
    }
    assert all(
        row["seconds"] > 0 and row["copies"] > 0 < row["of_copy"] for row in report["kernels"]
    )
    assert report["copy_gb_per_s"] > 0
    assert report["file"]["bytes_written"] > 0
    assert sorted(folder.iterdir()) == before


def test_the_table_is_for_people(trajcli, folder):
    result = trajcli("bench --elements 5000 --dofs 7 --rounds 1 --modes jerk")
    assert result.code == 0, result.err
    assert "copies" in result.out
    assert "file to file" in result.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--modes snap", "not a mode"),
        ("--dofs x", "--dofs"),
        ("--dofs 0", "too few"),
        ("--elements 10", "too few"),
        ("--rounds 0", "too few"),
        ("--folder nowhere", "--folder"),
    ],
)
def test_what_cannot_be_measured_is_refused(trajcli, folder, words, message):
    result = trajcli(f"bench {words}")
    assert result.code == 2
    assert message in result.err


def test_on_a_narrow_terminal_no_figure_is_broken(trajcli, folder, monkeypatch):
    from trajcli.views.screen import Screen

    line = "bench --elements 1000 --dofs 1 --rounds 1 --modes clique"
    monkeypatch.setattr(Screen, "of", staticmethod(lambda stream: Screen(30, True)))
    out = trajcli(line).out
    blocks = out[out.index("\n mode clique\n") : out.index("file to file")].splitlines()[1:]
    assert all(len(row) <= 30 for row in blocks)
    figures = [row.split()[-1] for row in blocks if row.startswith("   ns/element ")]
    assert figures
    assert all(re.fullmatch(r"\d+\.\d\d", figure) for figure in figures)
