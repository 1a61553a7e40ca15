"""What the output of a run holds: variables, names of trajectories, attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli import __version__
from trajcli.files.schema import Group, Schema, packed_schema, unequal_schema
from trajcli.jobs.request import Request, relative_texts
from trajcli.jobs.resolved import Resolved
from trajcli.jobs.segments import trajectory_names
from trajcli.jobs.statements import position_unit

if TYPE_CHECKING:
    from trajcli.jobs.gradient import Gradient

_LISTED_SOURCES = 100


def make_schema(
    request: Request,
    paths: Sequence[str],
    resolved: Resolved,
    quantities: Sequence[str],
    dtype: str,
    gradient: Gradient | None,
    own_times: bool,
) -> Schema:
    """What the output holds, of equal and of unequal lengths.

    paths: the files that were read. own_times: every trajectory of the run has times of its own.
    """
    inputs = resolved.longest
    whole = packed_schema(
        resolved.count,
        inputs.rows,
        int(inputs.actions.shape[2]),
        wanted=quantities,
        dtype=dtype,
        own_times=own_times,
        attributes=_attributes(request, resolved, paths),
        start_index=_start_index(resolved),
        joint_names=resolved.joint_names,
        units=request.units or position_unit(request, resolved),
        more=gradient.variables(inputs, dtype) if gradient is not None else (),
    )
    titles, first = request.source_paths(), resolved.sets[0]
    several = len(resolved.sets) > 1 or len(titles) > 1 or request.max_gap is not None
    are_named = several or first.member is not None or first.lengths is not None
    names = trajectory_names(resolved.segments, resolved.sets, titles) if are_named else {}
    if len(resolved.by_length) == 1:
        return replace(whole, trajectory_names=list(names.values()) or None)
    ordered = sorted(names)
    groups = [
        Group(part.inputs.rows, [names[n] for n in part.numbers.tolist()],
              np.searchsorted(ordered, part.numbers))
        for part in resolved.by_length
    ]  # fmt: skip
    schema = unequal_schema(whole, groups, request.pack)
    listed = [names[number] for number in ordered]
    return replace(schema, trajectory_names=listed if request.pack else None)


def _start_index(resolved: Resolved) -> Any:
    """Which start state each trajectory uses; None without an index."""
    indices = [part.inputs.start_index for part in resolved.by_length]
    if indices[0] is None:
        return None
    if len(indices) == 1:
        return indices[0] if isinstance(indices[0], np.ndarray) else indices[0].read_rows
    numbers = np.concatenate([part.numbers for part in resolved.by_length])
    return np.concatenate([np.asarray(index) for index in indices])[np.argsort(numbers)]


def _attributes(request: Request, resolved: Resolved, paths: Sequence[str]) -> dict[str, Any]:
    """What the output says of how it was made; paths are relative to its folder."""
    names = resolved.source_names
    listed = names[:_LISTED_SOURCES]
    if len(names) > _LISTED_SOURCES:
        listed = [*listed, f"and {len(names) - _LISTED_SOURCES} more"]
    texts = {
        "dt_source": resolved.dt_source,
        "source": "\n".join(listed),
        "start": resolved.start_source,
        **({"goal": resolved.goal.source} if resolved.goal.parts else {}),
    }
    return {
        "mode": resolved.mode.name,
        **resolved.mode.options(request.recorded),
        "dt": resolved.dt,
        **relative_texts(texts, paths, request.out),
        "trajcli_version": __version__,
        "request": request.to_json(),
    }
