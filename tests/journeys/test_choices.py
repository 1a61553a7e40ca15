"""Choices and a near miss; what is printed where, and with which characters."""

from __future__ import annotations

import json
from typing import get_args

from trajcli import Fault, InputError
from trajcli.cli import options
from trajcli.cli.console import Console, visible
from trajcli.files.layouts import LAYOUTS, PLAIN
from trajcli.modes import ALIASES, METHODS, MODES


def test_the_choices_are_what_the_rooms_below_know():
    assert set(get_args(options.ModeName)) == {*MODES, *ALIASES} - {"savgol", "smooth"}
    assert set(get_args(options.DifferencesName)) == {*METHODS}
    assert set(get_args(options.LayoutName)) == {*LAYOUTS, PLAIN}


def test_control_and_bidirectional_characters_are_written_out():
    assert visible("a\x1b[31mb\x07\x9b\u202e\u200f\u061c\tc\nd") == (
        "a\\x1b[31mb\\x07\\x9b\\u202e\\u200f\\u061c\\x09c\nd"
    )
    assert visible("größe · 5 × 3 → ok") == "größe · 5 × 3 → ok"


def test_many_faults_are_ten_and_how_many_more(trajcli, folder, capfd):
    error = InputError(*(Fault("broken", where=f"file {k}") for k in range(25)))
    assert Console(as_json=True).fail(error) == 2
    printed = capfd.readouterr()
    assert printed.err.count("broken") == 10
    assert printed.err.startswith("25 errors: file 0: broken\n")
    assert printed.err.endswith("\nand 15 more, which --json lists\n")
    assert len(json.loads(printed.out)["error"]["faults"]) == 25
