"""Plans a run before anything is computed: its inputs, output, device and blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from trajcli.arrays import output_dtype
from trajcli.errors import InputError, Note, Report, UsageError, raise_if_any, unknown
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
from trajcli.jobs._blocks import MOST_FAULTS, Batch, LeftOut, make_inputs
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
from trajcli.kernels.choose import choose
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
    """A run that is ready to start. Everything is checked but the values of the actions."""

    def __init__(self, request: Request, files: Files) -> None:
        """Looks up and checks everything that a request names; computes and writes nothing."""
        self.request, report = request, files.report
        shard, files_of_shard = request.shard, request.files_of_shard()
        resolved, batches = self._look_up(files, files_of_shard or request.sources)
        recording, self.mode_source = resolved.recording, resolved.mode_source
        self.mode, self.commands = batches[0].inputs.mode, batches[0].commands

        # before trajectories are divided: the times of a part are those of the whole run
        several = len(batches) > 1
        several |= files_of_shard is not None and len(request.source_paths()) > 1
        self.times_differ = any(batch.inputs.steps_differ for batch in batches)
        self.times_differ |= several and recording.step is None
        if shard is not None and files_of_shard is None:
            recording = recording.take(slice(*shard.share(len(recording))))
            batches = self._make_batches(resolved, recording)
        self.left_out = resolved.left_out
        if request.skip_bad:
            # lengths and steps are grouped again without what is left out
            bad = _find_bad(batches)
            recording = recording.take(~np.isin(recording.numbers, list(bad)))
            self.left_out += bad.values()
            batches = self._make_batches(resolved, recording)
        self.recording, self.batches = recording, batches

        # results take the type of the actions; where files differ, one that holds all of them
        arrays: list[Any] = [batch.inputs.actions for batch in batches]
        stored = np.result_type(*(getattr(x, "precision", x.dtype) for x in arrays))
        self.dtype = request.dtype or output_dtype(stored)
        self.bytes_read = sum(actions.nbytes for actions in arrays)
        # the device is chosen last: what is wrong with the inputs is said without starting CUDA
        self.choice = choose(request.device, request.backend)
        self.notes = report.notes
        # a note for each type that is converted, with the first input of that type
        kinds: dict[np.dtype[Any], Place] = {}
        for part in recording.members:
            kinds.setdefault(part.input.dtype, part.input.where)
        for kind, where in kinds.items():
            if kind.kind in "iu" or kind.itemsize not in (4, 8):
                report.add_notes(Note(f"{where}: {kind} converted to {self.dtype}"))
        self.sizes = self._choose_block_sizes(report)
        report.add_notes(*input_warnings(recording, batches[-1].inputs))
        # a hint at the recorded positions, where actions may be normalised commands; commands that
        # are positions in rad or m may lie in [-1, 1]
        layout, self.positions = recording.layout, None
        if self.mode.action_order or not (layout and layout.family.commands_positions):
            self.positions = recorded_positions_hint(recording)
        refuse_form(request.out, self.output, request.compress, has_write=True)

    def _look_up(self, files: Files, sources: Sequence[str]) -> tuple[Resolved, list[Batch]]:
        """Looks up everything that the request names; raises all faults together."""
        # each step collects its faults, and those after it go on with what they can: one run
        # reports everything that is wrong with a request
        request, report = self.request, files.report
        self.quantities = [name for name in QUANTITIES if name in request.write]
        with report.faults():
            others = [name for name in request.write if name not in QUANTITIES]
            if others or not self.quantities:
                found, choices = ", ".join(others) or "nothing", QUANTITIES
                raise UsageError(unknown("output", where="--write", choices=choices, found=found))
        with report.faults():
            # OUT of a shard is written by merge; read_finished_part checks a part
            refuse_output(request.out, request.overwrite or request.shard is not None)
        resolved: Resolved | None = None
        with report.faults():
            resolved = resolve(request, files, sources)
        batches: list[Batch] = []
        if resolved is not None:
            with report.faults():
                batches = self._make_batches(resolved, resolved.recording)
        self.gradient: Gradient | None = None
        if batches and (request.grad, request.cost, request.factor) != (None, None, None):
            with report.faults():
                self.gradient = Gradient(request, files, batches)
        with report.faults():
            refuse_input(request.out, files.paths())
        report.raise_faults()
        assert resolved is not None  # else its faults were raised
        return resolved, batches

    def _make_batches(self, resolved: Resolved, recording: Recording) -> list[Batch]:
        """Groups trajectories by length, the shortest first, with their inputs; checks shapes."""
        request, grouping, batches = self.request, Report(), list[Batch]()
        for part in recording.split_by_length():
            with grouping.faults():
                inputs = make_inputs(part, resolved.mode, request.recorded)
                inputs = replace(inputs, allow_nonfinite=request.allow_nonfinite)
                batches.append(Batch(part, inputs, resolved.commands))
        grouping.raise_faults()
        raise_if_any(f for batch in batches for f in batch.shape_faults(not request.skip_bad))
        return batches

    def _choose_block_sizes(self, report: Report) -> list[int]:
        """Chooses how many trajectories of each length are computed at once."""
        kind = "torch" if self.gradient is not None else self.choice.backend
        memory = self.request.memory
        if self.choice.device != "cpu":
            kind = "torch on a device" if kind == "torch" else kind
            memory = min(memory, int(SHARE_OF_FREE * free_bytes(self.choice.device)))
        elif kind == "triton":
            kind = "torch"
        # as many values as suit the caches, in as much memory as there is, but at least one
        # trajectory
        room, needs = min(BLOCK_VALUES[kind] * BYTES_PER_VALUE[kind], memory), list[int]()
        for inputs in (batch.inputs for batch in self.batches):
            _, horizon, dofs = inputs.actions.shape
            # steps that all trajectories share are not copied for each
            steps = BYTES_PER_STEP if inputs.uneven and inputs.steps_differ else 0
            row = dofs * BYTES_PER_VALUE[kind] + steps
            needs.append(int(max(horizon, inputs.rows) * row))
        if (most := max(needs)) > self.request.memory:
            size = f"{most / 2**20:.0f} MiB" if most >= 1 << 20 else f"{most / 2**10:.1f} KiB"
            what = f"one trajectory takes about {size} of working memory"
            report.add_notes(f"{what}, more than TRAJCLI_MEMORY")
        counts = [len(batch.recording) for batch in self.batches]
        return [max(1, min(room // n, count)) for n, count in zip(needs, counts, strict=True)]

    @cached_property
    def rotations(self) -> Sequence[RotationDofs]:
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
        request, recording, rotations = self.request, self.recording, self.rotations
        unit, others, names = self.unit, self.other_dofs, recording.joint_names
        options = self.mode.options(request.recorded)
        about = {"mode": self.mode.name, **options, "dt": recording.step or "varies"}
        quantities, sizes = self.quantities if others else (), {"dof": len(others)}
        variables = [row_variable(n, self.dtype, unit and derive_unit(n, unit)) for n in quantities]
        if rotations:
            turned, more_sizes, attributes = describe_rotations(
                rotations, self.quantities, self.dtype, request.rotation_frame
            )
            variables, sizes, about = variables + turned, sizes | more_sizes, about | attributes
            if self.mode.result_names:
                axes = ("trajectory", *["rotation"] * (len(rotations) > 1), "axis")
                for name, labels in ANGULAR_SMOOTHING.items():
                    variables.append(Variable(name, axes, np.dtype("f8"), labels))
        variables.append(time_variable(shared=not self.times_differ))
        # a part keeps stamps that are all 0: only merge knows those of the other parts
        variables += stamp_variables(recording.start_stamps(relative=request.shard is not None))
        if (index := recording.start.index) is not None:
            label, kind = {"long_name": "start state used"}, np.dtype("i8")
            values = load_array(index)
            variables.append(Variable("start_index", ("trajectory",), kind, label, values))
        variables += self.smoothing_variables
        if self.gradient is not None:
            grads, more_sizes = self.gradient.variables(self.batches[-1].inputs, self.dtype)
            variables, sizes = variables + grads, sizes | more_sizes

        # paths in an output are relative to its folder, so that both can be moved together
        sources = {
            n: [x.relative_text(request.folder) for x in xs] for n, xs in self.sources.items()
        }
        if request.shard is not None:
            about["shard"] = str(request.shard)
        texts = {name: sources_text(name, seen) for name, seen in sources.items()}
        about |= self.commands.options() | request.attributes(texts, self.left_out)
        # trajectories that have names in the input keep them, as groups or as labels
        titles, numbers = request.source_paths(), recording.numbers
        named = len(recording.members) > 1 or len(titles) > 1 or request.max_gap is not None
        named = named or recording.member is not None or recording.unequal
        description = describe_output(
            {x.inputs.rows: np.searchsorted(numbers, x.recording.numbers) for x in self.batches},
            sizes,
            variables,
            about,
            names=recording.output_names(titles) if named else None,
            joint_names=names and [names[dof] for dof in others],
        )
        return description if request.shard is None else description.describe_part(sources)

    @cached_property
    def smoothing_variables(self) -> list[Variable]:
        """The variables that mode smooth writes with the rows; OUT.npy holds rows alone."""
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


def _find_bad(batches: Sequence[Batch]) -> Mapping[int, LeftOut]:
    """Reads all values to find the trajectories, by number, with bad values or steps."""

    def spans() -> Iterator[Span]:
        for group, batch in enumerate(batches):
            count, rows, dofs = batch.inputs.actions.shape
            # nothing is computed yet, so that a block takes only the values that are read
            size = max(1, SCANNED_BYTES // (rows * dofs * 8))
            for begin in range(0, count, size):
                yield Span(group=group, begin=begin, end=min(begin + size, count))

    def check(span: Span) -> None:
        inputs = batches[span.group].read_inputs(span.begin, span.end)
        raise_if_any(value_faults(inputs, inputs.allow_nonfinite))

    bad = dict[int, LeftOut]()
    for span, faults in find_faults(spans(), check).items():
        recording = batches[span.group].recording
        bad[int(recording.numbers[span.begin])] = recording.place_text(span.begin), faults
    bad = dict(sorted(bad.items()))  # found length by length, reported in the order of the run
    if bad and len(bad) == sum(len(batch.recording) for batch in batches):
        first = list(bad.values())[:MOST_FAULTS]
        raise InputError(*(fault for _, faults in first for fault in faults))
    return bad


def describe_rotations(
    rotations: Sequence[RotationDofs], quantities: Sequence[str], dtype: str, frame: str
) -> tuple[list[Variable], dict[str, int], dict[str, Any]]:
    """Describes orientations [trajectory, row, (rotation,) 4] and angular rates [..., 3] of the
    ``quantities``: their variables, the sizes of their dimensions, and attributes of the output."""
    several, variables = len(rotations) > 1, list[Variable]()
    for order, (name, quantity) in enumerate(zip(ROTATIONS, QUANTITIES, strict=True)):
        if quantity in quantities:
            labels = {"long_name": name.replace("_", " ")}
            if order:
                labels |= {"units": UNITS_OF_ROTATIONS[order], "frame": frame}
            else:
                labels["order"] = "wxyz"
            dims = (*ROWS[:2], *["rotation"] * several, "axis" if order else "quaternion")
            variables.append(Variable(name, dims, np.dtype(dtype), labels))
    # arrays of one rotation have no axis that counts rotations
    count = {"rotation": len(rotations)} if several else {}
    attributes: dict[str, Any] = {"rotation_order": "wxyz", "rotation_frame": frame}
    attributes |= {"rotations": len(rotations)} if several else {}
    return variables, {**count, "quaternion": 4, "axis": 3}, attributes
