"""Plans a run before anything is computed: its inputs, output, device and blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from trajcli.arrays import output_dtype
from trajcli.errors import InputError, Note, UsageError, raise_if_any, unknown
from trajcli.files.atomic_output import refuse_input
from trajcli.files.catalogue import load_array
from trajcli.files.dofs import RotationDofs
from trajcli.files.opening import Files
from trajcli.files.outputs import (
    ROWS,
    Description,
    Span,
    Variable,
    describe_output,
    row_variable,
    stamp_variables,
    time_variable,
)
from trajcli.files.quantities import (
    ANGULAR_SMOOTHING,
    QUANTITIES,
    RECORDED_POSITION,
    RECORDED_START,
    ROTATIONS,
    SMOOTHING,
    UNITS_OF_ROTATIONS,
    derive_unit,
    sources_text,
)
from trajcli.files.recording import Recording
from trajcli.files.source import Place, first_and_more
from trajcli.files.writing import refuse_form, refuse_output
from trajcli.inputs import value_faults
from trajcli.jobs._blocks import MOST_FAULTS, Batch, LeftOut, make_batches
from trajcli.jobs._gradient import Gradient
from trajcli.jobs.job import find_faults
from trajcli.jobs.request import Request
from trajcli.jobs.resolve import (
    Resolved,
    input_warnings,
    position_unit,
    recorded_positions_hint,
    resolve,
    units_report,
)
from trajcli.kernels.choose import Choice, choose
from trajcli.kernels.cuda import free_bytes
from trajcli.memory import (
    BLOCK_VALUES,
    BYTES_PER_STEP,
    BYTES_PER_VALUE,
    SCANNED_BYTES,
    SHARE_OF_FREE,
)
from trajcli.units import units_of_dofs

# The options of methods of differentiation.
_RECORDING_OPTIONS = ("window", "degree", "order", "bandlimit", "noise", "robust")


class Plan:
    """A run that is ready to start. Everything is checked but the values of the actions.

    Attributes:
        recording: all trajectories.
        batches: those of each length, with their inputs, the shortest first.
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
        self.request, report = request, files.report
        shard, files_of_shard = request.shard, request.files_of_shard()
        with report.faults():
            self.quantities = _quantities(request.write)
        with report.faults():
            # OUT of a shard is written by merge; part_is_done says whether a part is replaced
            refuse_output(request.out, request.overwrite or shard is not None)
        resolved: Resolved | None = None
        with report.faults():
            resolved = resolve(request, files, files_of_shard or request.sources)
        batches: list[Batch] = []
        if resolved is not None:
            with report.faults():
                batches = self._batches(resolved, resolved.recording)
        self.gradient: Gradient | None = None
        if batches and (request.grad, request.cost, request.factor) != (None, None, None):
            with report.faults():
                self.gradient = Gradient(request, files, batches)
        with report.faults():
            refuse_input(request.out, files.paths())
        report.raise_faults()
        assert resolved is not None  # else its faults were raised
        recording, self.mode_source = resolved.recording, resolved.mode_source
        self.mode, self.commands = batches[0].inputs.mode, batches[0].commands
        # before trajectories are divided: the times of a part are those of the whole run
        self.own_times = any(batch.inputs.steps_differ for batch in batches)
        several = len(batches) > 1
        several = several or (files_of_shard is not None and len(request.source_paths()) > 1)
        self.own_times = self.own_times or (several and recording.step is None)
        if shard is not None and files_of_shard is None:
            recording = recording.take(slice(*shard.share(len(recording))))
            batches = self._batches(resolved, recording)
        self.left_out = resolved.left_out
        if request.skip_bad:
            bad = _bad_trajectories(batches)
            recording = recording.take(~np.isin(recording.numbers, list(bad)))
            self.left_out += bad.values()
            batches = self._batches(resolved, recording)
        self.recording, self.batches = recording, batches
        arrays = [batch.inputs.actions for batch in batches]
        stored = np.result_type(*(getattr(x, "precision", x.dtype) for x in arrays))
        self.dtype = request.dtype or output_dtype(stored)
        self.bytes_read = sum(actions.nbytes for actions in arrays)
        # the device is chosen last: what is wrong with the inputs is said without starting CUDA
        self.choice = choose(request.device, request.backend)
        kind, memory = _working_memory(self.choice, self.gradient is not None, request.memory)
        self.sizes = [_block_size(batch, kind, memory) for batch in batches]
        self.notes = report.notes
        report.add_notes(
            *_conversion_notes(recording, self.dtype),
            *_memory_notes(batches, kind, request.memory),
            *input_warnings(recording, batches[-1].inputs),
        )
        physical = self.mode.action_order > 0
        # commands that are positions in rad or m may lie in [-1, 1]
        layout = recording.layout
        physical = physical or not (layout and layout.family.commands_positions)
        self.positions = recorded_positions_hint(recording) if physical else None
        refuse_form(request.out, self.output, request.compress, has_write=True)

    def _batches(self, resolved: Resolved, recording: Recording) -> list[Batch]:
        """Returns the trajectories of each length; raises InputError for shapes that do not fit."""
        request = self.request
        batches = make_batches(recording, resolved.mode, resolved.commands, request)
        raise_if_any(f for batch in batches for f in batch.shape_faults(not request.skip_bad))
        return batches

    @cached_property
    def rotations(self) -> Sequence[RotationDofs]:
        """The dofs that are rotations."""
        return self.recording.rotations if self.request.recorded else self.recording.turning

    @cached_property
    def other_dofs(self) -> list[int]:
        """The dofs that are no part of a rotation."""
        taken = {dof for rotation in self.rotations for dof in rotation.dofs}
        return [dof for dof in range(self.recording.shape[2]) if dof not in taken]

    @cached_property
    def unit(self) -> str | None:
        """The units of the positions of the dofs that are no rotations; None where not known."""
        unit = position_unit(self.recording, self.mode, self.request.start)
        return unit and units_of_dofs(unit, self.other_dofs, self.recording.shape[2])

    @cached_property
    def sources(self) -> dict[str, Sequence[Place]]:
        """All sources, by the attribute of the output that sums them up."""
        start, goal = self.recording.start, self.recording.goal
        clocks = (part.clock for part in self.recording.parts_in_use())
        return {
            "source": self.recording.sources(),
            "dt_source": list(dict.fromkeys(clock.source for clock in clocks if clock)),
            "start": [Place(remark=RECORDED_START)] if self.request.recorded else start.sources,
            **({"goal": goal.sources} if goal.parts else {}),
        }

    @cached_property
    def output(self) -> Description:
        """Describes the output."""
        request, recording = self.request, self.recording
        inputs, unit = self.batches[-1].inputs, self.unit
        rotations, others, names = self.rotations, self.other_dofs, recording.joint_names
        sizes = {"dof": len(others)}
        of_dofs = self.quantities if others else ()
        variables = [row_variable(n, self.dtype, unit and derive_unit(n, unit)) for n in of_dofs]
        if rotations:
            sizes |= rotation_sizes(rotations)
            frame = request.rotation_frame
            variables += describe_rotations(rotations, self.quantities, self.dtype, frame)
            if self.mode.chooses:
                axes = ("trajectory", *["rotation"] * (len(rotations) > 1), "axis")
                for name, labels in ANGULAR_SMOOTHING.items():
                    variables.append(Variable(name, axes, np.dtype("f8"), labels))
        variables.append(time_variable(shared=not self.own_times))
        # a part keeps stamps that are all 0: only merge knows those of the other parts
        stamps = recording.start_stamps(relative=request.shard is not None)
        variables += stamp_variables(stamps)
        if (index := recording.start.index) is not None:
            label, kind = {"long_name": "start state used"}, np.dtype("i8")
            values = load_array(index)
            variables.append(Variable("start_index", ("trajectory",), kind, label, values))
        variables += self.smoothing_variables
        if self.gradient is not None:
            sizes |= self.gradient.sizes(inputs)
            variables += self.gradient.variables(inputs, self.dtype)
        # trajectories that have names in the input keep them, as groups or as labels
        titles = request.source_paths()
        several = len(recording.members) > 1 or len(titles) > 1 or request.max_gap is not None
        several = several or recording.member is not None or recording.unequal
        described = describe_output(
            {
                batch.inputs.rows: np.searchsorted(recording.numbers, batch.recording.numbers)
                for batch in self.batches
            },
            sizes,
            variables,
            self._attributes(),
            names=recording.output_names(titles) if several else None,
            joint_names=names and [names[dof] for dof in others],
        )
        return described if request.shard is None else described.of_part(self._sources_seen)

    @cached_property
    def smoothing_variables(self) -> list[Variable]:
        """The variables that mode smooth writes beside the rows; OUT.npy holds rows alone."""
        request, mode = self.request, self.mode
        if not (mode.result_names and self.other_dofs) or request.out.suffix == ".npy":
            return []
        variables = [row_variable(RECORDED_POSITION, self.dtype, self.unit)]
        for name in mode.result_names:
            labels = SMOOTHING[name]
            if name == "residual":
                labels = {**labels, "units": self.unit or ""}
            if name != "reweighted" or "robust" in mode.options():
                kind = np.dtype("i8" if name == "reweighted" else "f8")
                variables.append(Variable(name, ("trajectory", "dof"), kind, labels))
        if request.allow_nonfinite:  # rows that are NaN are filled in, those of long gaps badly
            labels = {"long_name": "row within a long gap"}
            variables.append(Variable("guessed", ROWS, np.dtype("u1"), labels))
        return variables

    def _attributes(self) -> dict[str, Any]:
        """Returns the attributes of the output; paths in them are relative to its folder."""
        options = self.mode.options(self.request.recorded)
        about = {"mode": self.mode.name, **options, "dt": self.recording.step or "varies"}
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
            name: [origin.relative_text(folder) for origin in origins]
            for name, origins in self.sources.items()
        }

    @cached_property
    def description(self) -> dict[str, Any]:
        """The plan as plain values, for the screen and for JSON."""
        request, recording, sources = self.request, self.recording, self.sources
        options = self.mode.options(request.recorded)
        shown = _RECORDING_OPTIONS if request.recorded else options
        first, last = self.batches[0].inputs, self.batches[-1].inputs
        rows = [batch.inputs.rows for batch in self.batches]
        return {
            "source": str(sources["source"][0]),
            "sources": len(sources["source"]),
            "layout": None if recording.layout is None else recording.layout.name,
            "mode": request.mode or self.mode.name if request.recorded else self.mode.name,
            "mode_source": self.mode_source and str(self.mode_source),
            "options": {name: value for name, value in options.items() if name in shown},
            "commands": self.commands.options(),
            "shape": {
                "trajectories": len(recording),
                "horizon": last.horizon + last.rates,
                "shortest": first.horizon + first.rates,
                "dofs": int(first.actions.shape[2]),
            },
            "output": self.output.kind,
            "rows": max(rows),
            "shortest_rows": min(rows),
            "dt": recording.step or "varies",
            "dt_source": str(first_and_more(sources["dt_source"])),
            "start": None if request.recorded else str(first_and_more(sources["start"])),
            "units": units_report(recording),
            "dtype": self.dtype,
            "write": list(self.quantities),
            "device": self.choice.device,
            "backend": self.choice.backend,
            "device_reason": self.choice.reason,
            "bytes_read": self.bytes_read,
            "bytes_written": self.output.nbytes,
            "block": {"trajectories": self.sizes[0]},
            "notes": self.notes,
            "left_out": [
                {"name": name, "reason": "; ".join(fault.what for fault in faults),
                 "faults": [fault.in_shell().as_dict() for fault in faults]}
                for name, faults in self.left_out
            ],
        }  # fmt: skip


def _bad_trajectories(batches: Sequence[Batch]) -> Mapping[int, LeftOut]:
    """Reads all values; returns the trajectories, by number, with values that are not finite or
    steps that are not positive. Raises InputError where all trajectories are bad."""

    def spans() -> Iterator[Span]:
        for group, batch in enumerate(batches):
            count, rows, dofs = batch.inputs.actions.shape
            size = max(1, SCANNED_BYTES // (rows * dofs * 8))
            for begin in range(0, count, size):
                yield Span(group=group, begin=begin, end=min(begin + size, count))

    def check(span: Span) -> None:
        inputs = batches[span.group].read(span.begin, span.end)
        raise_if_any(value_faults(inputs, inputs.allow_nonfinite))

    bad = dict[int, LeftOut]()
    for span, faults in find_faults(spans(), check).items():
        recording = batches[span.group].recording
        bad[int(recording.numbers[span.begin])] = recording.place_text(span.begin), faults
    in_order = dict(sorted(bad.items()))
    if bad and len(bad) == sum(len(batch.recording) for batch in batches):
        first = list(in_order.values())[:MOST_FAULTS]
        raise InputError(*(fault for _, faults in first for fault in faults))
    return in_order


def _conversion_notes(recording: Recording, dtype: str) -> Iterator[str]:
    """Yields a note for each type that is converted, with the first input of that type."""
    kinds: dict[Any, Place] = {}
    for part in recording.members:
        stored = part.input.dtype
        if stored.kind in "iu" or stored.itemsize not in (4, 8):
            kinds.setdefault(stored, part.input.where)
    for stored, where in kinds.items():
        yield Note(f"{where}: {stored} converted to {dtype}")


def _memory_notes(batches: Sequence[Batch], kind: str, memory: int) -> Iterator[str]:
    """Yields a warning where one trajectory alone takes more than the memory."""
    needed = max(_working_bytes(batch, kind) for batch in batches)
    if needed > memory:
        size = f"{needed / 2**20:.0f} MiB" if needed >= 1 << 20 else f"{needed / 2**10:.1f} KiB"
        yield f"one trajectory takes about {size} of working memory, more than TRAJCLI_MEMORY"


def _quantities(write: Sequence[str]) -> list[str]:
    others = [name for name in write if name not in QUANTITIES]
    if others or not write:
        found = ", ".join(others) or "nothing"
        raise UsageError(unknown("output", where="--write", choices=QUANTITIES, found=found))
    return [name for name in QUANTITIES if name in write]


def _working_memory(choice: Choice, gradient: bool, memory: int) -> tuple[str, int]:
    """Returns the key of BYTES_PER_VALUE for a block, and the memory that blocks may take: on a
    device at most a share of what is free there."""
    kind = "torch" if gradient else choice.backend
    if choice.device == "cpu":
        return ("torch" if kind == "triton" else kind), memory
    kind = "torch on a device" if kind == "torch" else kind
    return kind, min(memory, int(SHARE_OF_FREE * free_bytes(choice.device)))


def _block_size(batch: Batch, kind: str, memory: int) -> int:
    """Returns how many trajectories of one length are computed at once."""
    # as many values as suit the caches, in as much memory as there is, but at least one trajectory
    room = min(BLOCK_VALUES[kind] * BYTES_PER_VALUE[kind], memory)
    return int(max(1, min(room // _working_bytes(batch, kind), len(batch.recording))))


def _working_bytes(batch: Batch, kind: str) -> int:
    """Returns the working memory that one trajectory takes, in bytes."""
    inputs = batch.inputs
    _, horizon, dofs = inputs.actions.shape
    steps_differ = inputs.uneven and inputs.steps_differ
    # steps that all trajectories share are not copied for each
    per_row = dofs * BYTES_PER_VALUE[kind] + (BYTES_PER_STEP if steps_differ else 0)
    return int(max(horizon, inputs.rows) * per_row)


def describe_rotations(
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
    """Returns the sizes of the dimensions of :func:`describe_rotations`."""
    several = {"rotation": len(rotations)} if len(rotations) > 1 else {}
    return several | ({"quaternion": 4, "axis": 3} if rotations else {})


def rotation_attributes(rotations: Sequence[RotationDofs], frame: str) -> dict[str, Any]:
    """Returns the attributes of an output with these rotations."""
    several = {"rotations": len(rotations)} if len(rotations) > 1 else {}
    return {"rotation_order": "wxyz", "rotation_frame": frame, **several}
