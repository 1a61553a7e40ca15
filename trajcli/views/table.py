"""Says how a CSV is written: which columns, how numbers look, and what lies between them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import UsageError, join_names, unknown
from trajcli.files.recording import Array


@dataclass(frozen=True)
class TableForm:
    """How a CSV is written, by the options of the same names; see ``trajcli export --help``."""

    columns: Sequence[str] = ()
    decimals: int | None = None
    separator: str = ","
    decimal: str = "."
    no_heading: bool = False
    stamps: bool = False

    def require(self, out: Path) -> None:
        """Raises UsageError for a form where OUT is no CSV, and for one that contradicts itself."""
        if self != TableForm() and out.suffix.lower() not in ("", ".csv"):  # "-" has none
            words = [name for name in vars(self) if getattr(self, name) != getattr(TableForm, name)]
            found = ", ".join(f"--{name.replace('_', '-')}" for name in words)
            raise UsageError("an option of CSV alone", where=found, expected="OUT.csv, or -")
        if self.decimal == self.separator:
            what, expected = "a decimal comma between commas", "another separator"
            raise UsageError(what, where="--decimal", expected=expected, hint="--separator ';'")

    def places(self, heads: Sequence[str]) -> list[int]:
        """Returns which columns are written, of headings without units: those that the form names,
        behind the names of several trajectories. Raises UsageError for others."""
        first, places = int(heads[0] == "trajectory"), list[int]()
        for name in self.columns:
            own = [k for k, head in enumerate(heads) if name in (head, *head.split("/", 1))]
            own = [first] if name == "time" and heads[first] != "row" else own
            if not own:
                known = ["time", *dict.fromkeys(head.partition("/")[0] for head in heads), *heads]
                near = "".join(difflib.get_close_matches(name, known, 1))
                hint, choices = (
                    near and f"did you mean {near}?",
                    join_names(dict.fromkeys(known), 12),
                )
                raise UsageError(
                    unknown("column", choices=choices, found=name, where="--columns", hint=hint)
                )
            places += own
        places = places or [*range(len(heads))]
        return places if 0 in places or not first else [0, *places]

    def require_apart(self, times: Array) -> None:
        """Raises UsageError where neighbouring times [b, T] that are written become equal."""
        if self.decimals is None or not {"time", "t"}.intersection(self.columns or ["time"]):
            return
        if ((np.diff(np.round(times, self.decimals)) == 0) & (np.diff(times) != 0)).any():
            what, where = "times of rows become equal", f"--decimals {self.decimals}"
            expected = "more decimals, or --columns without time"
            raise UsageError(what, where=where, expected=expected)

    def cells(self, column: Array) -> list[Any]:
        """Returns the values of a column as they are written; integers stay as they are."""
        # float32 is written with all digits of the same number in float64
        values: list[Any] = column.tolist()
        if column.dtype.kind == "f" and (digits := self.decimals) is not None:
            # rounded first, and plus 0: nothing is -0.000
            values = [f"{round(x, digits) + 0.0:.{digits}f}" for x in values]
        if column.dtype.kind == "f" and self.decimal != ".":
            values = [str(x).replace(".", self.decimal) for x in values]
        return values
