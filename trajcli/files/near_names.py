"""What may have been meant by a dataset that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from trajcli.checks import describe
from trajcli.errors import Fault, InputError

_MOST, _LISTED = 2000, 8
"""Names that are looked at, and those that are listed."""


def candidates(names: Iterable[str], get: Callable[[str], Any]) -> str:
    """The datasets of these names with their shapes, those first that may be trajectories: floats
    [B, T, D] or [T, D]. What cannot be read is listed by its name alone."""
    texts: list[tuple[bool, str]] = []
    for name in names:
        stored, text = None, name
        with suppress(InputError):
            stored = get(name)
        if stored is not None:
            text = f"{name} {describe(stored.shape)}"
        fits = stored is not None and stored.ndim in (2, 3) and stored.dtype.kind == "f"
        texts.append((not fits, text))
    listed = [text for _, text in sorted(texts, key=lambda one: one[0])[:_LISTED]]
    return ", ".join(listed) or "no datasets"


def no_such_dataset(path: str, name: str, names: Sequence[str], get: Callable[[str], Any]) -> Fault:
    """The fault of a name that is not one of those of a file, with the near ones, or else all."""
    wanted, few = name.strip("/"), names[:_MOST]
    near = difflib.get_close_matches(wanted, few, 5, 0.4)
    groups = {group for one in few if (group := one.rpartition("/")[0])}
    group = next(iter(difflib.get_close_matches(wanted, groups, 1, 0.8)), "")
    found = candidates(near or few[:200], get)
    more = f" (of {len(names)} datasets)" if len(near or few[:_LISTED]) < len(names) else ""
    hint = f"trajcli inspect {path} lists them; name one as FILE:DATASET"
    if group and not wanted.startswith(group):
        hint = f"{path}:/{group}, if it is meant; {hint}"
    text = found + more if names else "a file without datasets"
    return Fault("no such dataset", f"{path}:{name}", "a dataset in the file", text, hint)
