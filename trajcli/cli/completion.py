"""Completion of FILE:DATASET in bash, zsh and fish: names of what lies in the file.

Names of files are left to the shell, which completes them where nothing is offered here.
"""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping

_typed = ""
"""In bash: what stands before the word, up to the colon at which bash cuts words."""


def prepare(variables: MutableMapping[str, str]) -> None:
    """Join the words that bash cut at a colon: `out.h5:pos` reaches us as three.

    Only what follows the last colon is the word that bash replaces, so that alone is completed.
    """
    global _typed
    if variables.get("_TRAJCLI_COMPLETE") != "complete_bash" or "COMP_WORDS" not in variables:
        return
    try:
        count = int(variables.get("COMP_CWORD", "0"))
    except ValueError:
        return
    words = re.split(r"\s+", variables["COMP_WORDS"].strip())
    words, here = words[:count], "".join(words[count : count + 1])
    joined: list[str] = []
    glued = False
    for word in words:
        if joined and (word == ":" or glued):
            joined[-1] += word
        else:
            joined.append(word)
        glued = word == ":"
    if here == ":":
        _typed, here = f"{joined.pop()}:" if len(joined) > 1 else "", ""
    elif glued and len(joined) > 1:
        _typed = joined.pop()
    variables["COMP_WORDS"] = " ".join([*joined, here])
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
            names = [slash + name for name in file.names()]
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


_MANY = 40
