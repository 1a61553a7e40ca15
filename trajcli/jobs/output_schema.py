"""What the output of a run holds: variables, names of trajectories, attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli import __version__
from trajcli.files.schema import Group, Schema, packed_schema, unequal_schema
from trajcli.jobs.request import relative_texts
from trajcli.jobs.resolved import Resolved
from trajcli.jobs.segments import trajectory_names
from trajcli.jobs.statements import position_unit

if TYPE_CHECKING:
    from trajcli.jobs.gradient import Gradient
    from trajcli.jobs.output_times import OutputTimes

_LISTED_SOURCES = 100


def make_schema(
    resolved: Resolved,
    paths: Sequence[str],
    quantities: Sequence[str],
    dtype: str,
    gradient: Gradient | None,
    times_differ: bool,
    output_times: OutputTimes | None,
) -> Schema:
    """What the output holds, of equal and of unequal lengths.

    paths: the files that were read. times_differ: trajectories of the run have rows of the mode at
    different times. output_times: of the rows that are written, where those are others.
    """
    inputs, request, parts = resolved.longest, resolved.request, resolved.by_length
    schema = packed_schema(
        resolved.count,
        max(part.output_rows for part in parts),
        int(inputs.actions.shape[2]),
        wanted=quantities,
        dtype=dtype,
        own_times=times_differ if output_times is None else output_times.differ,
        attributes=_attributes(resolved, paths, output_times),
        start_index=_start_index(resolved),
        joint_names=resolved.joint_names,
        units=position_unit(resolved),
        more=gradient.variables(inputs, dtype) if gradient is not None else (),
    )
    titles, first = request.source_paths(), resolved.sets[0]
    several = len(resolved.sets) > 1 or len(titles) > 1 or request.max_gap is not None
    several = several or first.member is not None or first.lengths is not None
    are_named = several or (request.to is not None and times_differ)  # as lengths may then, too
    names = trajectory_names(resolved.segments, resolved.sets, titles) if are_named else {}
    listed = list(names.values()) or None
    if len(parts) == 1:
        return replace(schema, trajectory_names=listed)
    places = [np.searchsorted(list(names), part.numbers) for part in parts]
    groups = [
        Group(part.output_rows, [names[n] for n in part.numbers.tolist()], place)
        for part, place in zip(parts, places, strict=True)
    ]
    unequal = unequal_schema(schema, groups, request.pack)
    return replace(unequal, trajectory_names=listed if request.pack else None)


def _start_index(resolved: Resolved) -> Any:
    """Which start state each trajectory uses; None without an index."""
    indices = [part.inputs.start_index for part in resolved.by_length]
    if indices[0] is None:
        return None
    if len(indices) == 1:
        return indices[0] if isinstance(indices[0], np.ndarray) else indices[0].read()
    numbers = np.concatenate([part.numbers for part in resolved.by_length])
    return np.concatenate([np.asarray(index) for index in indices])[np.argsort(numbers)]


def _attributes(
    resolved: Resolved, paths: Sequence[str], output_times: OutputTimes | None
) -> dict[str, Any]:
    """What the output says of how it was made; paths are relative to its folder.

    Of rows that are not those of the mode it does not say that they are.
    """
    request, sources = resolved.request, resolved.source_names
    more = len(sources) - _LISTED_SOURCES
    texts = {
        "dt_source": resolved.dt_source,
        "source": "\n".join(sources[:_LISTED_SOURCES] + [f"and {more} more"] * (more > 0)),
        "start": resolved.start_source,
        **({"goal": resolved.goal.source} if resolved.goal.parts else {}),
    }
    mode, options = resolved.mode.name, resolved.mode.options(resolved.recorded)
    about = {"mode": mode, **options, "dt": resolved.dt}
    if output_times is not None:
        chosen = " ".join(f"{name}={value}" for name, value in options.items())
        about = {"samples_of": f"{mode} {chosen}", "dt": output_times.step}
        texts["dt_source"] = output_times.where
    return {
        **about,
        **resolved.commands.options(),
        **relative_texts(texts, paths, request.out),
        "trajcli_version": __version__,
        "request": request.to_json(),
    }
