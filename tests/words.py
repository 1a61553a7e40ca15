"""Messages speak Python in the library, and the shell's words in commands."""

from __future__ import annotations

import re

from trajcli.cli import COMMANDS
from trajcli.errors import TrajcliError

_OF_THE_SHELL = re.compile(rf"(?<![\w-])--[a-z]|\btrajcli ({'|'.join(COMMANDS)})\b")
_OF_PYTHON = re.compile(r"\w=(True|False|None|[\"'])|\btrajcli\.\w+\(|\bState\(|\bin Python\b")
# Code that is typed in a shell.
_CODE = re.compile("python -c|tfds")


def require_words_of_python(error: TrajcliError) -> None:
    """A message of the library names no option and no command of the shell, and is short."""
    said = str(error)
    assert not _OF_THE_SHELL.search(said), said
    assert all(fault.lines() == str(fault).split("\n") for fault in error.faults), said


def require_words_of_the_shell(said: str) -> None:
    """A message of a command names no call and no argument of the library."""
    assert _CODE.search(said) or not _OF_PYTHON.search(said), said
