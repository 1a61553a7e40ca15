"""trajcli.json: what trajcli writes beside arrays where .npy and .npz have no attributes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trajcli.files.arrays import StoredArray

LIMIT = 1 << 20
"""Longer ones, in bytes, are not trajcli's."""


@dataclass(frozen=True)
class Provenance:
    """What trajcli.json says: attributes of the whole, units of each array, names of the dofs."""

    attributes: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    dofs: list[str] | None = None

    @staticmethod
    def parse(text: bytes) -> Provenance:
        """The document; an empty one where it is none of trajcli's."""
        try:
            document = json.loads(text) if len(text) <= LIMIT else {}
        except (ValueError, RecursionError):
            document = {}
        if not isinstance(document, dict):
            return Provenance()
        plain = {
            name: value
            for name, value in _table(document, "attributes").items()
            if isinstance(value, (str, int, float))
        }
        units = {name: str(value) for name, value in _table(document, "units").items()}
        names = document.get("dof")
        return Provenance(plain, units, list(map(str, names)) if isinstance(names, list) else None)

    def attach(self, stored: StoredArray, name: str) -> StoredArray:
        """The array with its unit."""
        unit = self.units.get(name)
        return replace(stored, attributes={"units": unit}) if unit else stored


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}
