"""Says how a CSV is written: which columns, how numbers look, and what lies between them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trajcli.errors import UsageError, join_names, unknown
from trajcli.kernels.program import NumpyArray


@dataclass(frozen=True)
class TableForm:
    """The form of a CSV, by the options of the same names; see ``trajcli export --help``."""

    columns: Sequence[str] = ()
    decimals: int | None = None
    separator: str = ","
    decimal: str = "."
    no_heading: bool = False
    stamps: bool = False

    def require(self, out: Path) -> None:
        # OUT may be "-", which has no ending.
        if self != TableForm() and out.suffix.lower() not in ("", ".csv"):
            words = [name for name in vars(self) if getattr(self, name) != getattr(TableForm, name)]
            found = ", ".join(f"--{name.replace('_', '-')}" for name in words)
            raise UsageError("an option of CSV alone", where=found, expected="OUT.csv, or -")
        if self.decimal == self.separator:
            what, expected = "a decimal comma between commas", "another separator"
            raise UsageError(what, where="--decimal", expected=expected, hint="--separator ';'")

    def column_indices(self, heads: Sequence[str]) -> list[int]:
        """Finds the columns that are written, given all headings without units."""
        first, indices = int(heads[0] == "trajectory"), list[int]()
        for name in self.columns:
            # A name is a whole heading, or either side of its slash: position, or joint_1.
            matches = [k for k, head in enumerate(heads) if name in (head, *head.split("/", 1))]
            matches = [first] if name == "time" and heads[first] != "row" else matches
            if not matches:
                known = ["time", *dict.fromkeys(head.partition("/")[0] for head in heads), *heads]
                similar = "".join(difflib.get_close_matches(name, known, 1))
                hint = similar and f"did you mean {similar}?"
                choices = join_names(dict.fromkeys(known), 12)
                raise UsageError(
                    unknown("column", choices=choices, found=name, where="--columns", hint=hint)
                )
            indices += matches
        indices = indices or [*range(len(heads))]
        return indices if 0 in indices or not first else [0, *indices]

    def require_distinct(self, times: NumpyArray) -> None:
        """Raises UsageError where neighbouring times [b, T] that are written become equal."""
        if self.decimals is None or not {"time", "t"}.intersection(self.columns or ["time"]):
            return
        if ((np.diff(np.round(times, self.decimals)) == 0) & (np.diff(times) != 0)).any():
            what, where = "times of rows become equal", f"--decimals {self.decimals}"
            expected = "more decimals, or --columns without time"
            raise UsageError(what, where=where, expected=expected)

    def cells(self, column: NumpyArray) -> list[Any]:
        """Formats the values of a column; integers stay as they are."""
        # Numbers of float32 have all digits of the same numbers in float64.
        values: list[Any] = column.tolist()
        if column.dtype.kind == "f" and (digits := self.decimals) is not None:
            # Rounded first and added to 0, a small negative number does not become -0.000.
            values = [f"{round(x, digits) + 0.0:.{digits}f}" for x in values]
        if column.dtype.kind == "f" and self.decimal != ".":
            values = [str(x).replace(".", self.decimal) for x in values]
        return values
