"""Completes FILE:DATASET in bash, zsh and fish with the names in the file.

Where this offers nothing, the shell completes names of files.
"""

from __future__ import annotations

import os
import re
from collections.abc import MutableMapping

# In bash, the text before the word that it completes, up to the colon at which it splits words.
_typed = ""
# More names than these do not fit on a screen, and are offered as groups.
_MANY = 40
# Shells evaluate and print what they are offered, so that names with quotes, $ or escapes are not.
_PLAIN = re.compile(r"[\w/.,+@%=-]+").fullmatch


def prepare(variables: MutableMapping[str, str]) -> None:
    """Joins the words that bash splits at a colon: `out.h5:pos` arrives as three."""
    global _typed
    count = variables.get("COMP_CWORD", "")
    if variables.get("_TRAJCLI_COMPLETE") != "complete_bash" or not count.isdecimal():
        return
    # bash has out.h5 : pos, and an optional space after the colon
    words = variables.get("COMP_WORDS", "").split()[: int(count) + 1]
    words += [""] * (int(count) >= len(words))  # the last word is still empty
    # spaces next to a colon are bash's own; all others separate words
    *joined, last = re.sub(" ?: ?", ":", " ".join(words)).split(" ")
    # bash replaces only what follows the last colon, so that only this is completed
    if ":" in words[-2:]:
        word = words[-1].removeprefix(":")
        _typed, last = last.removesuffix(word), word
    variables["COMP_WORDS"] = " ".join([*joined, last])
    variables["COMP_CWORD"] = str(len(joined))


def datasets(incomplete: str) -> list[str]:
    """Lists how FILE:… may continue; nothing before a file is named."""
    from trajcli.errors import TrajcliError
    from trajcli.files.opening import open_arrays
    from trajcli.files.source import parse_source

    typed = _typed + incomplete
    head, colon, beginning = typed.rpartition(":")
    path = parse_source(head).path if colon else None
    if path is None or not os.path.exists(os.path.expanduser(path)):
        return []
    slash = "/" if beginning.startswith("/") else ""
    try:
        with open_arrays(type(path)(os.path.expanduser(path))) as file:
            names = [slash + name for name in file.names() if _PLAIN(name)]
    except (TrajcliError, OSError):
        return []
    names = [name for name in names if name.startswith(beginning)]
    if len(names) > _MANY:
        ends = (name.find("/", len(beginning)) + 1 or len(name) for name in names)
        names = list(dict.fromkeys(name[:end] for name, end in zip(names, ends, strict=True)))
    return [f"{head}:{name}"[len(_typed) :] for name in names]
