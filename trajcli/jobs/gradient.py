"""Gradients in a run: what is asked for, what is written, and each block's share.

Every trajectory gets a gradient of its own, whatever it shares with others; what is shared (a
start state, a dt) is summed over the trajectories in their order. So the result does not depend
on how a run is divided into blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError, UsageError, raise_if_any
from trajcli.files.arrays import Dataset
from trajcli.files.near_names import candidates
from trajcli.files.schema import QUANTITIES, Variable
from trajcli.files.source import parse_source
from trajcli.inputs import Inputs
from trajcli.jobs.commands import Commands
from trajcli.jobs.request import Request, parse_floats
from trajcli.jobs.segments import rows_by_number
from trajcli.kernels.choose import Choice
from trajcli.units import parse_time_unit, per_si

if TYPE_CHECKING:
    from trajcli.files.opening import Files
    from trajcli.jobs.resolved import Resolved

_TERM = r"(?:(?P<weight>[^*]+)\*)?(?P<name>[^*]+)"
_PLUS = r"(?<![eE])\+"  # but not that of 1e+3
WRT = ("actions", "start", "goal", "dt")


@dataclass(frozen=True)
class Gradient:
    """What is pulled back and to what.

    One of ``upstream`` (gradients of the outputs [B, T, D], by name) and ``cost`` (weights of
    sums of squares). ``wrt`` names what gradients are wanted of; ``factor`` multiplies them.
    ``summed``: of the inputs (start_position, …, dt) that trajectories of the run share the
    shapes, as their gradients are summed. ``per_si``: what inputs were divided by to be in SI, [1
    or D] or a number; so are their gradients, which are then those of the values that the files
    hold. ``totals``: the sums so far, float64.
    """

    upstream: Mapping[str, Dataset]
    cost: Mapping[str, float]
    wrt: Sequence[str]
    factor: float
    summed: Mapping[str, tuple[int, ...]]
    per_si: Mapping[str, Any]
    totals: dict[str, Any] = field(default_factory=dict)

    def faults(self, resolved: Resolved) -> list[Fault]:
        """Upstream of another shape than the run has, and --wrt of what it has not."""
        inputs, lengths = resolved.longest, len(resolved.by_length)
        if lengths > 1:
            what, hint = "gradients of trajectories of unequal length", "run them one at a time"
            return [Fault(what, "--grad, --cost", "one length", str(lengths), hint)]
        shape = (resolved.count, inputs.rows, inputs.actions.shape[2])
        what = "upstream of another shape"
        faults = [
            Fault(what, stored.where, describe(shape), describe(stored.shape))
            for stored in self.upstream.values()
            if stored.shape != shape
        ]
        mixed = [n for n, by in self.per_si.items() if np.isnan(by).any()]
        if any(name.partition("_")[0] in self.wrt for name in mixed):
            what, hint = "gradients of inputs in different units", "run them one at a time"
            faults.append(Fault(what, "--grad, --cost", "one unit", ", ".join(mixed), hint))
        if "goal" in self.wrt and not inputs.goal:
            faults.append(Fault("this run has no goal state", "--wrt goal", hint="--ends goal"))
        return faults

    def variables(self, inputs: Inputs, dtype: str) -> list[Variable]:
        """What is written: grad/actions, grad/start_position, …, grad/dt, and cost.

        What is summed over trajectories is float64, so that the sums of shards can be added.
        """
        batch, variables = inputs.actions.shape[0], []
        for name, shape in _shapes(inputs).items():
            role = name.partition("_")[0]
            if role not in self.wrt:
                continue
            axes = {"actions": ("action", "dof"), "dt": ("step",)}.get(role, ("dof",))
            if name in self.summed:
                shape = self.summed[name]
                axes = (f"{role}_state", "dof")
                if role == "dt":
                    axes = tuple("one" if n == 1 else "step" for n in shape)
            else:
                shape, axes = (batch, *shape[1:]), ("trajectory", *axes)
            kind = "float64" if name in self.summed or name == "dt" else dtype
            variables.append(Variable(f"grad/{name}", axes, shape, np.dtype(kind)))
        if self.cost:
            variables.append(Variable("cost", ("trajectory",), (batch,), np.dtype("float64")))
        return variables

    def block(
        self, inputs: Inputs, commands: Commands, numbers: Any, choice: Choice, dtype: str
    ) -> Iterator[tuple[str, Any]]:
        """Run trajectories by number [b] forward and back; yields names and values of what is
        ready. Outputs are among them; what trajectories share comes from ``totals``."""

        def upstream(outputs: Mapping[str, Any]) -> dict[str, Any]:
            if self.cost:
                return {
                    name: (2.0 * weight * outputs[name].astype(np.float64)).astype(dtype)
                    for name, weight in self.cost.items()
                }
            return {
                name: np.asarray(rows_by_number(stored, numbers).read(), dtype)
                for name, stored in self.upstream.items()
            }

        outputs, grads = commands.pull_back(inputs, upstream, choice, dtype, self.wrt)
        yield from outputs.items()
        if self.cost:
            squares = (weight * _squares(outputs[name]) for name, weight in self.cost.items())
            yield "cost", sum(squares)
        for name, of_si in grads.items():
            grad = self.factor * of_si
            if name in self.per_si:
                grad = (grad / self.per_si[name]).astype(grad.dtype)
            if name in self.summed:
                self._add(name, grad, inputs)
            else:
                yield f"grad/{name}", grad

    def _add(self, name: str, values: Any, inputs: Inputs) -> None:
        """Add a block's values [n, ...] to the sum, one after the other: however trajectories are
        divided into blocks, the same."""
        shape = self.summed[name]
        total = self.totals.setdefault(f"grad/{name}", np.zeros(shape))
        places: Any = np.zeros(len(values), np.intp)
        if name != "dt" and shape[0] > 1:
            places = getattr(inputs, f"{name.partition('_')[0]}_index")
        one = shape if name == "dt" else shape[1:]
        np.add.at(total.reshape(-1, *one), places, values.reshape(-1, *one))


def _shapes(inputs: Inputs) -> dict[str, tuple[int, ...]]:
    """The shapes of what there may be gradients of: actions, start_position, …, dt. That of time
    stamps is of the steps between them; of dt without an axis of trajectories, its own."""
    states = {"start": inputs.start, "goal": inputs.goal}
    parts = {f"{role}_{part}": of[part] for role, of in states.items() for part in of}
    shapes = {name: tuple(map(int, of.shape)) for name, of in parts.items()}
    if inputs.times is None:
        assert inputs.dt is not None
        steps = tuple(map(int, inputs.dt.shape))
    else:
        *first, rows = map(int, inputs.times.shape)
        steps = (*first, rows - 1)
    return {"actions": tuple(map(int, inputs.actions.shape)), **shapes, "dt": steps}


def _per_si(resolved: Resolved) -> dict[str, Any]:
    """What inputs were divided by to be in SI, NaN where that differs among them."""
    of: dict[str, list[Any]] = {"actions": [], "dt": []}
    for source in resolved.sets:
        units = source.input_units
        by = 1.0 if units is None else per_si(units)
        of["actions"].append(np.broadcast_to(by, source.shape[2:]))
    for text in {segment.time.unit for segment in resolved.segments}:
        unit = parse_time_unit(text)
        of["dt"].append(np.array(1.0 if unit is None else unit.per_si))
    for role, state in (("start", resolved.start), ("goal", resolved.goal)):
        of |= {f"{role}_{part}": [by] for part, by in state.per_si.items()}
    every = {
        name: np.where((np.stack(by) == by[0]).all(0), by[0], np.nan) for name, by in of.items()
    }
    return {name: by for name, by in every.items() if (by != 1.0).any()}


def resolve_gradient(request: Request, files: Files, resolved: Resolved) -> Gradient:
    """What --grad, --cost, --wrt and --grad-factor ask for, with respect to all that the run has
    where the request does not say."""
    if request.grad is None and request.cost is None:
        options = (("--wrt", request.wrt), ("--grad-factor", request.factor))
        names = ", ".join(name for name, value in options if value is not None)
        hint = "--grad FILE[:GROUP] or --cost EXPRESSION says what is differentiated"
        raise UsageError(Fault("nothing to differentiate", names, hint=hint))
    if request.grad is not None and request.cost is not None:
        raise UsageError(Fault("two upstream gradients", "--grad and --cost", "one of them"))
    unknown = ", ".join(name for name in request.wrt or () if name not in WRT)
    if unknown:
        raise UsageError(Fault("unknown input", "--wrt", ", ".join(WRT), unknown))
    factor = 1.0 if request.factor is None else request.factor
    if not np.isfinite(factor):
        raise UsageError(Fault("not a factor", "--grad-factor", "a finite number", str(factor)))
    upstream = {} if request.grad is None else _upstream(files, request.grad)
    cost = {} if request.cost is None else parse_cost(request.cost)
    inputs = resolved.longest
    shapes = _shapes(inputs)
    wrt = request.wrt or tuple(dict.fromkeys(name.partition("_")[0] for name in shapes))
    indexed = {"start": inputs.start_index is not None, "goal": inputs.goal_index is not None}
    shared = {name: indexed.get(name.partition("_")[0], False) or shape[:1] == (1,)
              for name, shape in shapes.items()}  # fmt: skip
    shared |= {"actions": False, "dt": not inputs.steps_differ}
    summed = {name: shape for name, shape in shapes.items() if shared[name]}
    gradient = Gradient(upstream, cost, wrt, factor, summed, _per_si(resolved))
    raise_if_any(gradient.faults(resolved))
    return gradient


def parse_cost(text: str) -> dict[str, float]:
    """``velocity + 0.1*jerk`` → {"velocity": 1.0, "jerk": 0.1}.

    The cost of a trajectory is Σ weight · Σ x², over its rows and dofs. Raises UsageError for an
    empty cost, an unknown quantity, one that comes twice, or anything but NUMBER*NAME terms.
    """
    weights: dict[str, float] = {}
    faults = []
    expected = "terms NAME or NUMBER*NAME joined by +, of " + ", ".join(QUANTITIES)
    for part in re.split(_PLUS, text):
        match = re.fullmatch(_TERM, part.strip())
        name = match["name"].strip() if match else part.strip()
        weight = parse_floats(match["weight"]) if match and match["weight"] else [1.0]
        if not match or name not in QUANTITIES or weight is None or len(weight) > 1:
            term = f"{part.strip()!r} in {text!r}" if part.strip() else repr(text)
            faults.append(Fault("not a cost", "--cost", expected, term))
        elif name in weights:
            faults.append(Fault(f"{name} comes twice", "--cost", "each once", repr(text)))
        else:
            weights[name] = weight[0]
    raise_if_any(faults, UsageError)
    return weights


def _upstream(files: Files, text: str) -> dict[str, Dataset]:
    source = parse_source(text)
    file = files.open(source.path)
    prefix = f"{source.dataset.strip('/')}/" if source.dataset else ""
    datasets = {name: file.get(prefix + name) for name in QUANTITIES}
    stored = {name: values.require_numeric() for name, values in datasets.items() if values}
    if stored:
        return stored
    names = candidates(file.names()[:200], file.get)
    expected = f"upstream gradients named like the outputs: {', '.join(QUANTITIES)}"
    raise InputError(Fault("no upstream gradients", text, expected, names))


def _squares(values: Any) -> Any:
    """The sum of squares of each trajectory's rows and dofs."""
    wide = values.astype(np.float64).reshape(len(values), values.shape[1] * values.shape[2])
    return (wide * wide).sum(1)
