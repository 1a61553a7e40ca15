"""Completion of FILE:DATASET in bash, zsh and fish: names of what lies in the file.

Names of files are left to the shell, which completes them where nothing is offered here.
"""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping

_typed = ""
"""In bash: what stands before the word, up to the colon at which bash cuts words."""
_MANY = 40
"""Names, from which on whole groups are offered."""
_PLAIN = re.compile(r"[\w/.,+@%=-]+").fullmatch
"""Shells evaluate what they are offered, and show it: no name with quotes, $ or escapes."""


def prepare(variables: MutableMapping[str, str]) -> None:
    """Join the words that bash cut at a colon: `out.h5:pos` reaches us as three.

    Only what follows the last colon is the word that bash replaces, so that alone is completed.
    """
    global _typed
    count = variables.get("COMP_CWORD", "")
    if variables.get("_TRAJCLI_COMPLETE") != "complete_bash" or not count.isdecimal():
        return
    words = variables.get("COMP_WORDS", "").split()[: int(count) + 1]
    words += [""] * (int(count) >= len(words))  # nothing has been typed of the last one
    *joined, last = re.sub(" ?: ?", ":", " ".join(words)).split(" ")
    if ":" in words[-2:]:
        word = words[-1].removeprefix(":")
        _typed, last = last.removesuffix(word), word
    variables["COMP_WORDS"] = " ".join([*joined, last])
    variables["COMP_CWORD"] = str(len(joined))


def datasets(incomplete: str) -> list[str]:
    """What FILE:… can go on as; nothing where no file has been named yet."""
    from trajcli.errors import TrajcliError
    from trajcli.files.opening import open_arrays
    from trajcli.files.source import parse_source

    typed = _typed + incomplete
    head, colon, begun = typed.rpartition(":")
    path = parse_source(head).path if colon else None
    if path is None or not os.path.exists(os.path.expanduser(path)):
        return []
    slash = "/" if begun.startswith("/") else ""
    try:
        with open_arrays(type(path)(os.path.expanduser(path))) as file:
            names = [slash + name for name in file.names() if _PLAIN(name)]
    except (TrajcliError, OSError):
        return []
    return [f"{head}:{name}"[len(_typed) :] for name in _next(names, begun)]


def _next(names: list[str], begun: str) -> list[str]:
    """Names that go on from what was typed: whole groups where there are many, as of folders."""
    fitting = [name for name in names if name.startswith(begun)]
    if len(fitting) <= _MANY:
        return fitting
    cut = len(begun)
    ends = (name.find("/", cut) + 1 or len(name) for name in fitting)
    return list(dict.fromkeys(name[:end] for name, end in zip(fitting, ends, strict=True)))
