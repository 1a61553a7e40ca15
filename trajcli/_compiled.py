"""Calls of functions that torch.compile records without looking into them.

Dynamo reads the Python of what it compiles. Ours has arrays of NumPy, caches and checks, which it
does not follow; it runs as always on tensors without values, and records operators for them.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch

from trajcli.arrays import is_traced
from trajcli.errors import TrajcliError

_kept = threading.local()


def keep(values: Any) -> None:
    """Keeps what a call has made beside tensors, for :func:`constants`."""
    _kept.values = values


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def constants() -> Any:
    """Returns what the last call has kept, which is part of what torch.compile makes."""
    return _kept.values


def fixed(value: Any) -> Any:
    """Returns the number for a symbol, for others of which torch.compile compiles again."""
    value = float(value) if isinstance(value, torch.SymFloat) else value
    return int(value) if isinstance(value, torch.SymInt) else value


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def call(module: str, function: str, *args: Any, **options: Any) -> Any:
    """Returns what a function of a module returns: tensors, which torch records as one call.

    Symbols become the numbers that they stand for, but not in tuples. Where torch has no values,
    an error makes torch.compile run the caller without compiling it, as values may be what was
    missing; with ``fullgraph`` it is torch's error, which has the text of this one.
    """
    work: Any = torch.compiler.disable(getattr(sys.modules[module], function))  # type: ignore
    try:
        return work(*map(fixed, args), **{name: fixed(x) for name, x in options.items()})
    except TrajcliError as error:
        if is_traced():
            raise NotImplementedError(str(error)) from error
        raise
