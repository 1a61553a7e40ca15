"""What describes recordings beside their arrays: JSON objects in attributes and other files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from trajcli.files.catalogue import Catalogue, json_object, text_of
from trajcli.files.clock import Clock
from trajcli.files.source import Place


class Metadata(NamedTuple):
    """A JSON object that describes recordings: an attribute of the group data, or a file."""

    place: Place
    table: Mapping[str, Any]

    def value(self, *keys: str) -> Any:
        """Returns the value at a path of keys; None if there is none."""
        value: Any = self.table
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def time(self, step: float, text: str) -> Clock:
        """Returns the time of a step in seconds; the text says how it is stated."""
        return Clock.even(step, self.place.then(f" {text}"))


def metadata(file: Catalogue, name: str) -> Metadata:
    """Returns metadata of the recordings of a file, which are empty where there are none.

    name: env_args and others are attributes of the group data; ``*.json`` is the file beside that
    has the name of this one, and ``meta/info.json`` is in the folder of the data set.
    """
    if not name.endswith(".json"):
        table = json_object(file.attributes("data").get(name))
        return Metadata(Place(str(file.path), "/data", name), table)
    # FOLDER/data/CHUNK/FILE has FOLDER/meta, any other file meta beside it; nothing else is read,
    # since other users may write there
    folders = file.path.absolute().parents
    chunked = name.startswith("meta/") and len(folders) > 2 and folders[1].name == "data"
    beside = name.replace("*", file.path.stem)
    beside = f"../../{beside}" if chunked else beside
    return Metadata(Place(str(file.path_beside(beside))), file.beside(beside))


def controller(file: Catalogue) -> str:
    """Returns the controller that a file like robosuite's names, OSC_POSE; "" for none."""
    about = (text_of(file.attributes("data").get(name, "")) for name in ("env_args", "env_info"))
    named = re.search('"((OSC|IK|JOINT|WHOLE_BODY)_[A-Z_]+)"', " ".join(about))
    return named[1] if named else ""
