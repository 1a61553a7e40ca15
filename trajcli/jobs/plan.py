"""Plans a run before anything is computed: its inputs, output, device and blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from trajcli.arrays import output_dtype
from trajcli.errors import FaultCollector, InputError, Note, UsageError
from trajcli.files.atomic_output import refuse_input
from trajcli.files.catalogue import in_memory
from trajcli.files.dofs import RotationDofs
from trajcli.files.opening import Files
from trajcli.files.outputs import (
    ROWS,
    Description,
    Variable,
    describe_output,
    row_variable,
    stamp_variables,
    time_variable,
)
from trajcli.files.quantities import (
    QUANTITIES,
    RECORDED_POSITION,
    RECORDED_START,
    ROTATIONS,
    SMOOTHING,
    UNITS_OF_ROTATIONS,
    sources_text,
    unit_of,
)
from trajcli.files.source import Place, first_and_more
from trajcli.files.trajectories import Trajectories
from trajcli.files.writing import refuse_form, refuse_output
from trajcli.jobs.gradient import Gradient
from trajcli.jobs.inputs import MOST_FAULTS, LeftOut, LengthInputs, inputs_by_length
from trajcli.jobs.request import Request
from trajcli.jobs.resolve import (
    input_warnings,
    position_unit,
    recorded_positions,
    resolve,
    units_report,
)
from trajcli.kernels.choose import Choice, choose
from trajcli.kernels.cuda import free_bytes
from trajcli.memory import BLOCK_VALUES, BYTES_PER_STEP, BYTES_PER_VALUE, SHARE_OF_FREE
from trajcli.modes import PARTS
from trajcli.modes.smooth import Smooth
from trajcli.units import units_of_dofs

# The options of methods of differentiation.
_RECORDING_OPTIONS = ("window", "degree", "order", "bandlimit", "noise", "robust")
SMOOTHED = {
    "bandlimit": {"long_name": "cutoff frequency", "units": "Hz"},
    "residual": {"long_name": "deviation of residuals", "units": "rad"},
}
"""What method smooth chooses for each axis, with its labels."""


class Plan:
    """A run that is ready to start. Everything is checked but the values of the actions.

    Attributes:
        parts: the inputs of the trajectories of each length, the shortest first.
        sizes: how many trajectories of each length are computed at once.
        own_times: whether the rows of trajectories are at different times.
        mode_source: the file that states the mode, where the request names none.
        left_out: the trajectories and files that --skip-bad leaves out.
        positions: where actions may be normalised commands, a hint at the recorded positions.
    """

    def __init__(self, request: Request, files: Files) -> None:
        """Looks up and checks everything that a request names; computes and writes nothing.

        Raises TrajcliError with every fault that can be found without reading all values.
        """
        # OUT of a shard is written by merge; part_is_done says whether a part is replaced
        overwrite = request.overwrite or request.shard is not None
        check, shard, files_of_shard = FaultCollector(), request.shard, request.files_of_shard()
        self.request = request
        resolved: tuple[Trajectories, list[LengthInputs], Place | None, list[LeftOut]]
        self.quantities, _, resolved = check.attempt(
            lambda: _quantities(request.write),
            partial(refuse_output, request.out, overwrite),
            lambda: resolve(request, files, files_of_shard or request.sources),
        )
        wanted = (request.grad, request.cost, request.factor) != (None, None, None)
        self.gradient: Gradient | None
        self.gradient, _ = check.attempt(
            lambda: Gradient(request, files, resolved[1]) if resolved and wanted else None,
            lambda: refuse_input(request.out, files.paths()),
        )
        check.raise_if_any()
        trajectories, parts, self.mode_source, left_out = resolved
        self.mode, self.commands = parts[0].inputs.mode, parts[0].commands
        # before trajectories are divided: the times of a part are those of the whole run
        self.own_times = any(part.inputs.steps_differ for part in parts)
        several = len(parts) > 1 or (files_of_shard is not None and len(request.source_paths()) > 1)
        self.own_times = self.own_times or (several and trajectories.step is None)
        if shard is not None and files_of_shard is None:
            trajectories = trajectories.take(slice(*shard.share(len(trajectories))))
            parts = inputs_by_length(trajectories, self.mode, self.commands, request.recorded)
        if request.skip_bad:
            bad = _bad_trajectories(parts, request.allow_nonfinite)
            trajectories = trajectories.take(~np.isin(trajectories.numbers, list(bad)))
            left_out += bad.values()
            parts = inputs_by_length(trajectories, self.mode, self.commands, request.recorded)
        self.trajectories, self.parts, self.left_out = trajectories, parts, left_out
        arrays = [part.inputs.actions for part in parts]
        stored = np.result_type(*(getattr(x, "precision", x.dtype) for x in arrays))
        self.dtype = request.dtype or output_dtype(stored)
        self.bytes_read = sum(actions.nbytes for actions in arrays)
        # the device is chosen last: what is wrong with the inputs is said without starting CUDA
        self.choice = choose(request.device, request.backend)
        kind, memory = _working_memory(self.choice, self.gradient is not None, request.memory)
        self.sizes = [_block_size(part, kind, memory) for part in parts]
        self.notes = [
            *trajectories.notes,
            *_conversion_notes(trajectories, self.dtype),
            *_memory_notes(parts, kind, request.memory),
            *input_warnings(trajectories, parts[-1].inputs),
        ]
        first, physical = trajectories.first, self.mode.derivatives_of > 0
        # commands that are positions in rad or m may lie in [-1, 1]
        physical = physical or not (first.layout and first.layout.commands_positions)
        self.positions = recorded_positions(first) if physical else None
        refuse_form(request.out, self.output, request.compress, has_write=True)

    @cached_property
    def rotations(self) -> Sequence[RotationDofs]:
        """The dofs that are rotations."""
        first = self.trajectories.first
        return first.rotations if self.request.recorded else first.turning

    @cached_property
    def other_dofs(self) -> list[int]:
        """The dofs that are no part of a rotation."""
        taken = {dof for rotation in self.rotations for dof in rotation.dofs}
        return [dof for dof in range(self.trajectories.first.shape[2]) if dof not in taken]

    @cached_property
    def unit(self) -> str | None:
        """The units of the positions of the dofs that are no rotations; None where not known."""
        first = self.trajectories.first
        unit = position_unit(first, self.mode, self.request.start)
        return unit and units_of_dofs(unit, self.other_dofs, first.shape[2])

    @cached_property
    def sources(self) -> dict[str, Sequence[Place]]:
        """All sources, by the attribute of the output that sums them up."""
        groups = self.trajectories.groups_in_use
        start, goal = self.trajectories.start, self.trajectories.goal
        return {
            "source": self.trajectories.sources,
            "dt_source": list(dict.fromkeys(group.time.source for group in groups if group.time)),
            "start": [Place(remark=RECORDED_START)] if self.request.recorded else start.sources,
            **({"goal": goal.sources} if goal.parts else {}),
        }

    @cached_property
    def output(self) -> Description:
        """Describes the output."""
        request, trajectories, first = self.request, self.trajectories, self.trajectories.first
        inputs, unit = self.parts[-1].inputs, self.unit
        rotations, others, names = self.rotations, self.other_dofs, first.joint_names
        sizes = {"dof": len(others)}
        of_dofs = self.quantities if others else ()
        variables = [row_variable(n, self.dtype, unit and unit_of(n, unit)) for n in of_dofs]
        if rotations:
            sizes |= rotation_sizes(rotations)
            frame = request.rotation_frame
            variables += rotation_variables(rotations, self.quantities, self.dtype, frame)
            if isinstance(self.mode, Smooth):
                axes = ("trajectory", *["rotation"] * (len(rotations) > 1), "axis")
                for name, labels in SMOOTHED.items():
                    variables.append(Variable(f"angular_{name}", axes, np.dtype("f8"), labels))
        variables.append(time_variable(shared=not self.own_times))
        # a part keeps stamps that are all 0: only merge knows those of the other parts
        stamps = trajectories.start_stamps(relative=request.shard is not None)
        variables += stamp_variables(stamps)
        if (index := trajectories.start.of(trajectories.numbers).index) is not None:
            label, kind = {"long_name": "start state used"}, np.dtype("i8")
            values = in_memory(index)
            variables.append(Variable("start_index", ("trajectory",), kind, label, values))
        variables += self.smoothing_variables
        if self.gradient is not None:
            sizes |= self.gradient.sizes(inputs)
            variables += self.gradient.variables(inputs, self.dtype)
        # trajectories that have names in the input keep them, as groups or as labels
        titles = request.source_paths()
        several = len(trajectories.groups) > 1 or len(titles) > 1 or request.max_gap is not None
        several = several or first.member is not None or first.lengths is not None
        described = describe_output(
            {
                part.inputs.rows: np.searchsorted(trajectories.numbers, part.trajectories.numbers)
                for part in self.parts
            },
            sizes,
            variables,
            self._attributes(),
            names=trajectories.names(titles) if several else None,
            joint_names=names and [names[dof] for dof in others],
        )
        if request.shard is None:
            return described
        # merge needs all sources, which attributes sum up, and the order of the groups in the run
        listed = dict(self._sources_seen)
        if groups := described.groups:
            titles_of = {n: x for g in groups for n, x in zip(g.numbers, g.names, strict=True)}
            listed["trajectory"] = [titles_of[number] for number in sorted(titles_of)]
        return replace(described, sources=listed)

    @cached_property
    def smoothing_variables(self) -> list[Variable]:
        """The variables that mode smooth writes beside the rows; OUT.npy holds rows alone."""
        request, mode = self.request, self.mode
        if not (isinstance(mode, Smooth) and self.other_dofs) or request.out.suffix == ".npy":
            return []
        variables = [row_variable(RECORDED_POSITION, self.dtype, self.unit)]
        for name, labels in SMOOTHING.items():
            if name == "residual":
                labels = {**labels, "units": self.unit or ""}
            if name != "reweighted" or mode.robust:
                kind = np.dtype("i8" if name == "reweighted" else "f8")
                variables.append(Variable(name, ("trajectory", "dof"), kind, labels))
        if request.allow_nonfinite:  # rows that are NaN are filled in, those of long gaps badly
            labels = {"long_name": "row within a long gap"}
            variables.append(Variable("guessed", ROWS, np.dtype("u1"), labels))
        return variables

    def _attributes(self) -> dict[str, Any]:
        """Returns the attributes of the output; paths in them are relative to its folder."""
        options = self.mode.options(self.request.recorded)
        about = {"mode": self.mode.name, **options, "dt": self.trajectories.step or "varies"}
        if self.rotations:
            about |= rotation_attributes(self.rotations, self.request.rotation_frame)
        texts = {name: sources_text(name, names) for name, names in self._sources_seen.items()}
        if self.request.shard is not None:
            about["shard"] = str(self.request.shard)
        written = self.request.attributes(texts, self.left_out)
        return {**about, **self.commands.options(), **written}

    @property
    def _sources_seen(self) -> dict[str, list[str]]:
        """All :attr:`sources`, with paths relative to the folder of OUT."""
        folder = self.request.folder
        return {
            name: [origin.seen_from(folder) for origin in origins]
            for name, origins in self.sources.items()
        }

    @cached_property
    def description(self) -> dict[str, Any]:
        """The plan as plain values, for the screen and for JSON."""
        request, first, sources = self.request, self.trajectories.first, self.sources
        options = self.mode.options(request.recorded)
        shown = _RECORDING_OPTIONS if request.recorded else options
        rows = [part.inputs.rows for part in self.parts]
        return {
            "source": str(sources["source"][0]),
            "sources": len(sources["source"]),
            "layout": None if first.layout is None else first.layout.name,
            "mode": request.mode or self.mode.name if request.recorded else self.mode.name,
            "mode_source": self.mode_source and str(self.mode_source),
            "options": {name: value for name, value in options.items() if name in shown},
            "commands": self.commands.options(),
            "shape": {
                "trajectories": len(self.trajectories),
                "horizon": self.parts[-1].inputs.horizon + self.parts[-1].inputs.rates,
                "shortest": self.parts[0].inputs.horizon + self.parts[0].inputs.rates,
                "dofs": int(self.parts[0].inputs.actions.shape[2]),
            },
            "output": self.output.kind,
            "rows": max(rows),
            "shortest_rows": min(rows),
            "dt": self.trajectories.step or "varies",
            "dt_source": str(first_and_more(sources["dt_source"])),
            "start": None if request.recorded else str(first_and_more(sources["start"])),
            "units": units_report(first),
            "dtype": self.dtype,
            "write": list(self.quantities),
            "device": self.choice.device,
            "backend": self.choice.backend,
            "device_reason": self.choice.reason,
            "bytes_read": self.bytes_read,
            "bytes_written": self.output.nbytes,
            "block": {"trajectories": self.sizes[0]},
            "notes": list(self.notes),
            "left_out": [
                {"name": name, "reason": "; ".join(fault.what for fault in faults),
                 "faults": [fault.as_dict() for fault in faults]}
                for name, faults in self.left_out
            ],
        }  # fmt: skip


def _bad_trajectories(
    parts: Sequence[LengthInputs], allow_nonfinite: bool
) -> Mapping[int, LeftOut]:
    """Reads all values; returns the trajectories, by number, with values that are not finite or
    steps that are not positive. Raises InputError where all trajectories are bad."""
    bad: dict[int, LeftOut] = {}
    for part in parts:
        bad |= part.bad(allow_nonfinite)
    in_order = dict(sorted(bad.items()))
    if len(bad) == sum(len(part.trajectories) for part in parts):
        first = list(in_order.values())[:MOST_FAULTS]
        raise InputError(*(fault for _, faults in first for fault in faults))
    return in_order


def _conversion_notes(trajectories: Trajectories, dtype: str) -> Iterator[str]:
    """Yields a note for each type that is converted, with the first input of that type."""
    kinds: dict[Any, Place] = {}
    for group in trajectories.groups:
        stored = group.input.dtype
        if stored.kind in "iu" or stored.itemsize not in (4, 8):
            kinds.setdefault(stored, group.input.where)
    for stored, where in kinds.items():
        yield Note(f"{where}: {stored} converted to {dtype}")


def _memory_notes(parts: Sequence[LengthInputs], kind: str, memory: int) -> Iterator[str]:
    """Yields a warning where one trajectory alone takes more than the memory."""
    needed = max(_working_bytes(part, kind) for part in parts)
    if needed > memory:
        size = f"{needed / 2**20:.0f} MiB" if needed >= 1 << 20 else f"{needed / 2**10:.1f} KiB"
        yield f"one trajectory takes about {size} of working memory, more than TRAJCLI_MEMORY"


def _quantities(write: Sequence[str]) -> list[str]:
    unknown = [name for name in write if name not in QUANTITIES]
    if unknown or not write:
        raise UsageError(
            "unknown output",
            where="--write",
            expected=", ".join(QUANTITIES),
            found=", ".join(unknown) or "nothing",
        )
    return [name for name in PARTS if name in write]


def _working_memory(choice: Choice, gradient: bool, memory: int) -> tuple[str, int]:
    """Returns the key of BYTES_PER_VALUE for a block, and the memory that blocks may take: on a
    device at most a share of what is free there."""
    kind = "torch" if gradient else choice.backend
    if choice.device == "cpu":
        return ("torch" if kind == "triton" else kind), memory
    kind = "torch on a device" if kind == "torch" else kind
    return kind, min(memory, int(SHARE_OF_FREE * free_bytes(choice.device)))


def _block_size(part: LengthInputs, kind: str, memory: int) -> int:
    """Returns how many trajectories of one length are computed at once."""
    # as many values as suit the caches, in as much memory as there is, but at least one trajectory
    room = min(BLOCK_VALUES[kind] * BYTES_PER_VALUE[kind], memory)
    return int(max(1, min(room // _working_bytes(part, kind), len(part.trajectories))))


def _working_bytes(part: LengthInputs, kind: str) -> int:
    """Returns the working memory that one trajectory takes, in bytes."""
    inputs = part.inputs
    _, horizon, dofs = inputs.actions.shape
    steps_differ = inputs.uneven and inputs.steps_differ
    # steps that all trajectories share are not copied for each
    per_row = dofs * BYTES_PER_VALUE[kind] + (BYTES_PER_STEP if steps_differ else 0)
    return int(max(horizon, inputs.rows) * per_row)


def rotation_variables(
    rotations: Sequence[RotationDofs], quantities: Sequence[str], dtype: str, frame: str
) -> Iterator[Variable]:
    """Describes orientations [trajectory, row, (rotation,) 4] and angular rates [..., 3] for the
    quantities that are written: orientation with position, angular_velocity with velocity, …"""
    several = ("rotation",) if len(rotations) > 1 else ()
    for order, (name, quantity) in enumerate(zip(ROTATIONS, QUANTITIES, strict=True)):
        if rotations and quantity in quantities:
            last = "axis" if order else "quaternion"
            labels = {"long_name": name.replace("_", " ")}
            labels |= (
                {"units": UNITS_OF_ROTATIONS[order], "frame": frame} if order else {"order": "wxyz"}
            )
            yield Variable(name, (*ROWS[:2], *several, last), np.dtype(dtype), labels)


def rotation_sizes(rotations: Sequence[RotationDofs]) -> dict[str, int]:
    """Returns the sizes of the dimensions of :func:`rotation_variables`."""
    several = {"rotation": len(rotations)} if len(rotations) > 1 else {}
    return several | ({"quaternion": 4, "axis": 3} if rotations else {})


def rotation_attributes(rotations: Sequence[RotationDofs], frame: str) -> dict[str, Any]:
    """Returns the attributes of an output with these rotations."""
    several = {"rotations": len(rotations)} if len(rotations) > 1 else {}
    return {"rotation_order": "wxyz", "rotation_frame": frame, **several}
