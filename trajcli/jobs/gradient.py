"""Gradients in a run: what is asked for, what is written, and each block's share.

Every trajectory gets a gradient of its own, whatever it shares with others; what is shared (a
start state, a dt) is summed over the trajectories in their order. So the result does not depend
on how a run is cut into blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trajcli.checks import describe
from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.arrays import StoredArray
from trajcli.files.schema import QUANTITIES, Variable
from trajcli.files.source import parse_source
from trajcli.inputs import Inputs
from trajcli.jobs.cost import parse_cost
from trajcli.jobs.places import Files
from trajcli.jobs.request import Request
from trajcli.kernels.choose import Choice

WRT = ("actions", "start", "goal", "dt")
_SUM = "sum/"


@dataclass(frozen=True)
class Gradient:
    """What is pulled back and to what.

    One of ``upstream`` (gradients of the outputs [B, T, D], by name) and ``cost`` (weights of
    sums of squares). ``wrt`` names what gradients are wanted of; ``factor`` multiplies them.
    ``apart``: what trajectories share is not summed, but given for each of them.
    """

    upstream: Mapping[str, StoredArray]
    cost: Mapping[str, float]
    wrt: Sequence[str]
    factor: float
    totals: dict[str, Total] = field(default_factory=dict)
    apart: bool = False

    def variables(self, inputs: Inputs, dtype: str) -> list[Variable]:
        """What is written: grad/actions, grad/start_position, …, grad/dt, and cost."""
        batch, horizon, dofs = inputs.actions.shape
        kind = np.dtype(dtype)
        found = []
        if "actions" in self.wrt:
            axes = ("trajectory", "action", "dof")
            found.append(Variable("grad/actions", axes, (batch, horizon, dofs), kind))
        for role, parts in (("start", inputs.start), ("goal", inputs.goal)):
            if role in self.wrt:
                for part, values in parts.items():
                    count = int(values.shape[0])
                    own = count == batch and getattr(inputs, f"{role}_index") is None
                    along = "trajectory" if own else f"{role}_state"
                    name = f"grad/{role}_{part}"
                    found.append(Variable(name, (along, "dof"), (count, dofs), kind))
        if "dt" in self.wrt:
            shape = _dt_shape(inputs)
            along = "trajectory" if shape[:1] == (batch,) else "one"
            names = (along, "step")[2 - len(shape) :]
            dims = tuple("one" if n == 1 else d for d, n in zip(names, shape, strict=True))
            found.append(Variable("grad/dt", dims, shape, np.dtype("float64")))
        if self.cost:
            found.append(Variable("cost", ("trajectory",), (batch,), np.dtype("float64")))
        return found

    def block(
        self, inputs: Inputs, whole: Inputs, begin: int, choice: Choice, dtype: str
    ) -> Iterator[tuple[str, int, Any]]:
        """Run a block forward and back; yields name, first row and values of what is ready.

        Outputs come under their names; what is shared by trajectories comes from ``finish``.
        """

        def upstream(outputs: Mapping[str, Any]) -> dict[str, Any]:
            if self.cost:
                return {
                    name: (2.0 * weight * outputs[name].astype(np.float64)).astype(dtype)
                    for name, weight in self.cost.items()
                }
            end = begin + inputs.actions.shape[0]
            return {
                name: np.asarray(stored.read_rows(begin, end), dtype)
                for name, stored in self.upstream.items()
            }

        from trajcli.adjoint import pull_back

        outputs, grads = pull_back(inputs, upstream, choice, dtype, self.wrt)
        yield from ((name, begin, values) for name, values in outputs.items())
        if self.cost:
            cost = [weight * _squares(outputs[name]) for name, weight in self.cost.items()]
            yield "cost", begin, sum(cost)
        for name, grad in grads.items():
            values = self.factor * grad
            if name == "actions":
                yield "grad/actions", begin, values
            elif name == "dt":
                yield from self._steps(values, whole, begin)
            else:
                yield from self._states(f"grad/{name}", values, inputs, whole, begin)

    def carried(self) -> dict[str, Any]:
        """The sums so far, to be kept in a file."""
        return {_SUM + name: total.value for name, total in self.totals.items()}

    def carry_on(self, carried: Mapping[str, Any]) -> None:
        """Take up the sums of a run that was stopped."""
        for name, values in carried.items():
            if name.startswith(_SUM):
                total = self.totals[name.removeprefix(_SUM)] = Total(values.shape)
                total.value += values

    def finish(self) -> Iterator[tuple[str, int, Any]]:
        """What was summed over all trajectories."""
        for name, total in self.totals.items():
            yield name, 0, total.value

    def _steps(self, values: Any, whole: Inputs, begin: int) -> Iterator[tuple[str, int, Any]]:
        shape = _dt_shape(whole)
        if len(shape) == 2 and shape[0] == whole.actions.shape[0] and shape[0] != 1:
            yield "grad/dt", begin, values
            return
        values = values.reshape(len(values), *shape)
        if self.apart:
            yield "grad/dt", begin, values
        else:
            self.totals.setdefault("grad/dt", Total(shape)).add(values)

    def _states(
        self, name: str, values: Any, inputs: Inputs, whole: Inputs, begin: int
    ) -> Iterator[tuple[str, int, Any]]:
        role, _, part = name.removeprefix("grad/").partition("_")
        count = int(getattr(whole, role)[part].shape[0])
        index = getattr(inputs, f"{role}_index")
        own = index is None and count == whole.actions.shape[0] and count != 1
        if own or self.apart:
            yield name, begin, values
            return
        total = self.totals.setdefault(name, Total((count, values.shape[1])))
        total.add(values, None if count == 1 else index)


class Total:
    """A sum over trajectories, one after the other: however they are cut into blocks, the same."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.value = np.zeros(tuple(shape))

    def add(self, values: Any, index: Any = None) -> None:
        """Add values [n, ...] to the one there is, or each to that of its index [n]."""
        places = np.zeros(len(values), np.intp) if index is None else np.asarray(index)
        np.add.at(self.value.reshape(-1, *values.shape[1:]), places, values)


def find_gradient(request: Request, files: Files) -> Gradient | None:
    """What a request asks for; None where it asks for no gradient."""
    if request.grad is None and request.cost is None:
        extra = [o for o, v in (("--wrt", request.wrt), ("--grad-factor", request.factor)) if v]
        if extra:
            hint = "--grad FILE[:GROUP] or --cost EXPRESSION says what is differentiated"
            raise UsageError(Fault("nothing to differentiate", ", ".join(extra), hint=hint))
        return None
    if request.grad is not None and request.cost is not None:
        raise UsageError(Fault("two upstream gradients", "--grad and --cost", "one of them"))
    unknown = [name for name in request.wrt or () if name not in WRT]
    if unknown:
        found = ", ".join(unknown)
        raise UsageError(Fault("unknown input", "--wrt", ", ".join(WRT), found))
    factor = 1.0 if request.factor is None else request.factor
    if not np.isfinite(factor):
        raise UsageError(Fault("not a factor", "--grad-factor", "a finite number", str(factor)))
    upstream = {} if request.grad is None else _upstream(files, request.grad)
    cost = {} if request.cost is None else parse_cost(request.cost)
    return Gradient(upstream, cost, request.wrt or (), factor)


def _upstream(files: Files, text: str) -> dict[str, StoredArray]:
    source = parse_source(text)
    file = files.open(source)
    prefix = f"{source.dataset.strip('/')}/" if source.dataset else ""
    found = {name: file.get(prefix + name) for name in QUANTITIES}
    given = {name: stored.require_numeric() for name, stored in found.items() if stored}
    if given:
        return given
    names = ", ".join(file.names()[:8]) or "a file without datasets"
    expected = f"upstream gradients named like the outputs: {', '.join(QUANTITIES)}"
    raise InputError(Fault("no upstream gradients", text, expected, names))


def gradient_faults(gradient: Gradient, inputs: Inputs) -> list[Fault]:
    """What does not fit: upstream of another shape, --wrt of something the run has not."""
    batch, horizon, dofs = inputs.actions.shape
    shape = (batch, inputs.mode.rows(horizon, inputs.recorded), dofs)
    faults = [
        Fault("upstream of another shape", stored.where, describe(shape), describe(stored.shape))
        for stored in gradient.upstream.values()
        if stored.shape != shape
    ]
    if "start" in gradient.wrt and not inputs.start:
        faults.append(Fault("a recording has no start state", "--wrt start", "actions, dt"))
    if "goal" in gradient.wrt and not inputs.goal:
        faults.append(Fault("this run has no goal state", "--wrt goal", hint="--ends goal"))
    return faults


def with_defaults(gradient: Gradient, inputs: Inputs) -> Gradient:
    """The same with respect to all the run has, where the request does not say."""
    if gradient.wrt:
        return gradient
    having = {"actions": True, "start": bool(inputs.start), "goal": bool(inputs.goal), "dt": True}
    return replace(gradient, wrt=tuple(name for name in WRT if having[name]))


def _dt_shape(inputs: Inputs) -> tuple[int, ...]:
    """The shape of dt's gradient: dt's own; of the steps between time stamps."""
    if inputs.times is None:
        assert inputs.dt is not None
        return tuple(int(n) for n in inputs.dt.shape)
    *some, rows = (int(n) for n in inputs.times.shape)
    return (*some, rows - 1)


def _squares(values: Any) -> Any:
    """The sum of squares of each trajectory's rows and dofs."""
    wide = values.astype(np.float64).reshape(len(values), -1)
    return (wide * wide).sum(1)
