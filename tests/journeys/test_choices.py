"""Options with a few values: all of them complete, and a near miss is named."""

from __future__ import annotations

from typing import get_args

import pytest

from trajcli.cli import options
from trajcli.cli.console import visible
from trajcli.files.layouts import LAYOUTS, PLAIN
from trajcli.modes import ALIASES, MODES


def test_the_choices_are_what_the_rooms_below_know():
    assert set(get_args(options.ModeName)) == {*MODES, *ALIASES}
    assert set(get_args(options.LayoutName)) == {*LAYOUTS, PLAIN}


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("operator --mode jrek --horizon 3 --dt 0.1 -o a.npz", "jerk"),
        ("operator --mode jerk --scheme zho --horizon 3 --dt 0.1 -o a.npz", "zoh"),
        ("resample actions.npy --to 5 --method lineer -o a.h5", "linear"),
    ],
)
def test_a_near_miss_is_named(trajcli, folder, line, meant):
    result = trajcli(line)
    assert result.code == 2
    assert f"did you mean {meant}?" in result.err
    assert "expected:" in result.err


def test_control_and_bidirectional_characters_are_written_out():
    assert visible("a\x1b[31mb\x07\x9b\u202e\u200f\u061c\tc\nd") == (
        "a\\x1b[31mb\\x07\\x9b\\u202e\\u200f\\u061c\\x09c\nd"
    )
    assert visible("größe · 5 × 3 → ok") == "größe · 5 × 3 → ok"


def test_names_from_the_command_line_cannot_steer_the_terminal(trajcli, folder):
    result = trajcli("inspect", "no\x1b]0;title\x07file.h5")
    assert result.code == 2
    assert "\x1b" not in result.err
    assert "\\x1b]0;title" in result.err
