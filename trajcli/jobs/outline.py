"""A schema as plain values, without those of trajectories: what merging needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from trajcli.files.schema import Schema, Variable


def outline(schema: Schema) -> dict[str, Any]:
    """The schema of a whole run as plain values."""
    return {
        "kind": schema.kind,
        "dims": dict(schema.dims),
        "attributes": [[name, *_plain(value)] for name, value in schema.attributes.items()],
        "joint_names": None if schema.joint_names is None else list(schema.joint_names),
        "variables": [_variable(variable) for variable in schema.variables],
    }


def _variable(variable: Variable) -> dict[str, Any]:
    return {
        "name": variable.name,
        "dims": list(variable.dims),
        "shape": [int(n) for n in variable.shape],
        "dtype": variable.dtype.str,
        "attributes": dict(variable.attributes),
        "given": variable.values is not None,
    }


def variable_of(each: Mapping[str, Any]) -> Variable:
    """A variable again, without its values."""
    dims, shape = tuple(each["dims"]), tuple(each["shape"])
    return Variable(each["name"], dims, shape, np.dtype(each["dtype"]), each["attributes"])


def schema_of(values: Mapping[str, Any], given: Mapping[str, Any]) -> Schema:
    """The schema again; ``given``: values of the variables that are not streamed."""
    variables = [
        replace(variable_of(each), values=given[each["name"]] if each["given"] else None)
        for each in values["variables"]
    ]
    attributes = {name: _value(kind, value) for name, kind, value in values["attributes"]}
    return Schema(values["dims"], variables, attributes, values["joint_names"])


def _plain(value: Any) -> tuple[str, Any]:
    """The type of an attribute and its value; of numbers the exact ones."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.str, value.tolist()
    return "", value


def _value(kind: str, value: Any) -> Any:
    if not kind:
        return value
    return np.asarray(value, np.dtype(kind))[()]
