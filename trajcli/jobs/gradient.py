"""Gradients in a run: what is asked for, what is written, and each block's share.

Every trajectory gets a gradient of its own, whatever it shares with others; what is shared (a
start state, a dt) is summed over the trajectories in their order, with the error of each sum
carried along. So the result does not depend on how a run is cut into blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trajcli.arrays import to_torch
from trajcli.checks import describe
from trajcli.errors import Fault, InputError, UsageError
from trajcli.files.arrays import StoredArray
from trajcli.files.schema import QUANTITIES, Variable
from trajcli.files.source import parse_source
from trajcli.inputs import Inputs
from trajcli.jobs.cost import parse_cost
from trajcli.jobs.places import Files
from trajcli.jobs.request import Request
from trajcli.kernels.pairs import two_sum

WRT = ("actions", "start", "goal", "dt")


@dataclass(frozen=True)
class Gradient:
    """What is pulled back and to what.

    One of ``upstream`` (gradients of the outputs [B, T, D], by name) and ``cost`` (weights of
    sums of squares). ``wrt`` names what gradients are wanted of; ``factor`` multiplies them.
    """

    upstream: Mapping[str, StoredArray]
    cost: Mapping[str, float]
    wrt: Sequence[str]
    factor: float
    totals: dict[str, _Total] = field(default_factory=dict)

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
        self, inputs: Inputs, whole: Inputs, begin: int, kernels: Any, device: str, dtype: str
    ) -> Iterator[tuple[str, int, Any]]:
        """Run a block forward and back; yields name, first row and values of what is ready.

        Outputs come under their names; what is shared by trajectories comes from ``finish``.
        """
        import torch

        from trajcli.autograd import run_differentiable

        leaves, block = _with_leaves(inputs, self.wrt, device)
        rows = run_differentiable(block.program(device), kernels, getattr(torch, dtype))
        outputs = dict(zip(QUANTITIES, rows, strict=True))
        yield from ((name, begin, x.detach().cpu().numpy()) for name, x in outputs.items())
        end = begin + rows[0].shape[0]
        if self.cost:
            squares = {name: outputs[name].detach().double() ** 2 for name in self.cost}
            cost = sum(weight * squares[name].sum((1, 2)) for name, weight in self.cost.items())
            yield "cost", begin, cost.cpu().numpy()  # type: ignore[union-attr]
            pulled = {
                name: (2.0 * weight * outputs[name].detach().double()).to(outputs[name].dtype)
                for name, weight in self.cost.items()
            }
        else:
            pulled = {
                name: to_torch(stored.read_rows(begin, end), device).to(outputs[name].dtype)
                for name, stored in self.upstream.items()
            }
        grads = torch.autograd.grad(
            [outputs[name] for name in pulled],
            list(leaves.values()),
            list(pulled.values()),
            allow_unused=True,
        )
        for name, leaf, grad in zip(leaves, leaves.values(), grads, strict=True):
            found = torch.zeros_like(leaf) if grad is None else self.factor * grad.double()
            values = found.detach().cpu().numpy()
            if name == "grad/actions":
                yield name, begin, values
            elif name == "grad/dt":
                yield from self._steps(values, whole, begin)
            else:
                yield from self._states(name, values, inputs, whole, begin)

    def finish(self) -> Iterator[tuple[str, int, Any]]:
        """What was summed over all trajectories."""
        for name, total in self.totals.items():
            yield name, 0, total.value()

    def _steps(self, values: Any, whole: Inputs, begin: int) -> Iterator[tuple[str, int, Any]]:
        shape = _dt_shape(whole)
        if len(shape) == 2 and shape[0] == whole.actions.shape[0] and shape[0] != 1:
            yield "grad/dt", begin, values
            return
        self.totals.setdefault("grad/dt", _Total(shape)).add(values.reshape(len(values), *shape))

    def _states(
        self, name: str, values: Any, inputs: Inputs, whole: Inputs, begin: int
    ) -> Iterator[tuple[str, int, Any]]:
        role, _, part = name.removeprefix("grad/").partition("_")
        count = int(getattr(whole, role)[part].shape[0])
        index = getattr(inputs, f"{role}_index")
        if index is None and count == whole.actions.shape[0] and count != 1:
            yield name, begin, values
            return
        total = self.totals.setdefault(name, _Total((count, values.shape[1])))
        if count == 1 or index is None:
            total.add(values[:, None])
        else:
            for state in np.unique(index):
                total.add(values[np.asarray(index) == state], int(state))


class _Total:
    """A sum over trajectories in their order, with the error of each addition carried along."""

    def __init__(self, shape: Sequence[int]) -> None:
        self._hi = np.zeros(tuple(shape))
        self._lo = np.zeros(tuple(shape))

    def add(self, values: Any, at: Any = ...) -> None:
        """Add values [n, ...], one after the other, to the whole or to one entry."""
        start = np.asarray(self._hi[at])[None]
        sums = np.cumsum(np.concatenate([start, values]), 0)
        gained = two_sum(sums[1:], -sums[:-1])
        missed = (values - gained.hi) - gained.lo
        errors = np.cumsum(np.concatenate([np.asarray(self._lo[at])[None], missed]), 0)
        self._hi[at], self._lo[at] = sums[-1], errors[-1]

    def value(self) -> Any:
        """The sum."""
        return self._hi + self._lo


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


def _with_leaves(inputs: Inputs, wrt: Sequence[str], device: str) -> tuple[dict[str, Any], Inputs]:
    """A block whose inputs are tensors of its own trajectories, those in ``wrt`` to be leaves."""
    leaves: dict[str, Any] = {}
    batch = int(inputs.actions.shape[0])

    def leaf(name: str, tensor: Any, wanted: bool) -> Any:
        if wanted:
            leaves[name] = tensor = tensor.clone().requires_grad_()
        return tensor

    actions = leaf("grad/actions", to_torch(inputs.actions, device), "actions" in wrt)
    states = {}
    for role in ("start", "goal"):
        gathered = inputs.gathered(role, device)
        states[role] = {
            part: leaf(f"grad/{role}_{part}", values, role in wrt)
            for part, values in gathered.items()
        }
    raw = to_torch(inputs.raw_steps(), device).double()
    dt = leaf("grad/dt", raw.expand(batch, raw.shape[1]), "dt" in wrt)
    block = replace(
        inputs,
        actions=actions,
        start=states["start"],
        goal=states["goal"],
        start_index=None,
        goal_index=None,
        dt=dt,
        times=None,
        steps_aligned=inputs.times is not None,
    )
    return leaves, block
