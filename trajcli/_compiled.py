"""Calls of functions that torch.compile records as one operation.

Dynamo traces Python code, but cannot follow ours through NumPy arrays, caches and checks. So our
code runs as usual, on tensors without values, and records operators for them.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch

from trajcli.arrays import is_traced
from trajcli.errors import TrajcliError

# The constants of the latest call of each thread.
_kept = threading.local()


def keep(values: Any) -> None:
    """Keeps results of a call that are no tensors, for :func:`constants`."""
    _kept.values = values


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def constants() -> Any:
    """Recalls what the last call kept; torch.compile makes it part of the graph."""
    return _kept.values


def fixed(value: Any) -> Any:
    """Converts a symbol to its number; torch.compile compiles again for another number."""
    value = float(value) if isinstance(value, torch.SymFloat) else value
    return int(value) if isinstance(value, torch.SymInt) else value


@torch.compiler.allow_in_graph  # type: ignore[untyped-decorator]
def call(module: str, function: str, *args: Any, **options: Any) -> Any:
    """Calls a function of a module, which torch records as one call that returns tensors.

    Symbols become their numbers, but not in tuples.
    """
    # An error while torch has no values may be due to that: NotImplementedError makes torch.compile
    # run the caller without compiling it. With fullgraph it is torch's error, with the same text.
    work: Any = torch.compiler.disable(getattr(sys.modules[module], function))  # type: ignore
    try:
        return work(*map(fixed, args), **{name: fixed(x) for name, x in options.items()})
    except TrajcliError as error:
        if is_traced():
            raise NotImplementedError(str(error)) from error
        raise
