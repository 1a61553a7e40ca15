"""Computes gradients in a run: by the actions, start, goal and steps of every trajectory, in SI.

The gradient of a shared start state or dt is the sum over the trajectories that use it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trajcli.commands import Commands
from trajcli.errors import Fault, InputError, UsageError, raise_if_any, wrong_shape
from trajcli.files.catalogue import Dataset, candidates, load_array, take_trajectories
from trajcli.files.outputs import Variable
from trajcli.files.quantities import QUANTITIES
from trajcli.files.reading import parse_floats
from trajcli.files.source import parse_source
from trajcli.inputs import Inputs
from trajcli.jobs.request import Request
from trajcli.kernels.choose import Choice

if TYPE_CHECKING:
    from trajcli.files.opening import Files
    from trajcli.jobs._blocks import Batch

_TERM = r"(?:(?P<weight>[^*]+)\*)?(?P<name>[^*]+)"
_PLUS = r"(?<![eE])\+"  # but not the sign in 1e+3


class Gradient:
    """The gradients that --grad, --cost and --grad-factor name, pulled back block by block: of
    ``upstream`` gradients of the outputs [B, T, D], or of ``cost``, weights of sums of squares."""

    def __init__(self, request: Request, files: Files, batches: Sequence[Batch]) -> None:
        if request.grad is None and request.cost is None:
            what, where = "nothing to differentiate", "--grad-factor"
            hint = "--grad FILE[:GROUP] or --cost EXPRESSION says what is differentiated"
            raise UsageError(what, where=where, hint=hint)
        if request.grad is not None and request.cost is not None:
            what, where = "two upstream gradients", "--grad and --cost"
            raise UsageError(what, where=where, expected="one of them")
        self.factor = 1.0 if request.factor is None else request.factor
        if not np.isfinite(self.factor):
            what, expected, found = "not a factor", "a finite number", str(self.factor)
            raise UsageError(what, where="--grad-factor", expected=expected, found=found)
        self.upstream = dict[str, Dataset]()
        if request.grad is not None:
            source = parse_source(request.grad)
            file = files.open(source.path)
            prefix = f"{source.dataset.strip('/')}/" if source.dataset else ""
            datasets = {name: file.get(prefix + name) for name in QUANTITIES}
            self.upstream = {name: x.require_numeric() for name, x in datasets.items() if x}
            if not self.upstream:
                what, found = "no upstream gradients", candidates(file.names()[:200], file.get)
                expected = f"upstream gradients named like the outputs: {', '.join(QUANTITIES)}"
                raise InputError(what, where=request.grad, expected=expected, found=found)
        # velocity + 0.1*jerk becomes {"velocity": 1.0, "jerk": 0.1}, for Σ weight · Σ x²; all terms
        # are looked at, so that one run reports every fault
        self.cost, text, faults = dict[str, float](), request.cost, list[Fault]()
        for part in () if text is None else re.split(_PLUS, text):
            match = re.fullmatch(_TERM, part.strip())
            name = match["name"].strip() if match else part.strip()
            weight = parse_floats(match["weight"]) if match and match["weight"] else [1.0]
            if not match or name not in QUANTITIES or weight is None or len(weight) > 1:
                expected = "terms NAME or NUMBER*NAME joined by +, of " + ", ".join(QUANTITIES)
                found = f"{part.strip()!r} in {text!r}" if part.strip() else repr(text)
                faults.append(Fault("not a cost", where="--cost", expected=expected, found=found))
            elif name in self.cost:
                what = f"{name} comes twice"
                faults.append(Fault(what, where="--cost", expected="each once", found=repr(text)))
            else:
                self.cost[name] = weight[0]
        raise_if_any(faults, UsageError)
        # arrays of gradients [B, H, D] have one H for all
        if len(batches) > 1:
            what, found = "gradients of trajectories of unequal length", str(len(batches))
            where, hint = "--grad, --cost", "run them one at a time"
            raise InputError(what, where=where, expected="one length", found=found, hint=hint)
        batch, _, dofs = batches[0].inputs.actions.shape
        shape = (batch, batches[0].inputs.rows, dofs)
        what = "upstream of another shape"
        raise_if_any(
            wrong_shape(stored.where, shape, stored.shape, what=what)
            for stored in self.upstream.values()
            if stored.shape != shape
        )

    def variables(self, inputs: Inputs, dtype: str) -> tuple[list[Variable], dict[str, int]]:
        """Describes grad/actions [B, H, D], grad/start_position [B, D], …, grad/dt [B, 1 or H] and
        cost [B], with the sizes of the dimensions that only gradients have."""
        dims: dict[str, tuple[str, ...]] = {"actions": ("trajectory", "action", "dof")}
        for role, state in (("start", inputs.start), ("goal", inputs.goal)):
            dims |= {f"{role}_{part}": ("trajectory", "dof") for part in state}
        if inputs.rates:  # the first recorded rate is part of the start, but counts as an action
            del dims[f"start_{QUANTITIES[inputs.mode.action_order]}"]
        variables = [Variable(f"grad/{n}", axes, np.dtype(dtype)) for n, axes in dims.items()]
        # T stamps have T - 1 steps between them
        steps = inputs.dt if inputs.times is None else inputs.times  # what is large lies in a file
        assert steps is not None
        count = int((1, *steps.shape)[-1]) - (inputs.times is not None)
        axis = "one" if count == 1 else "step"
        # dt is shared by many rows, so its gradient is float64 whatever the type of the outputs
        variables.append(Variable("grad/dt", ("trajectory", axis), np.dtype("f8")))
        if self.cost:
            variables.append(Variable("cost", ("trajectory",), np.dtype("f8")))
        return variables, {"action": int(inputs.actions.shape[1]) + inputs.rates, axis: count}

    def compute(
        self, inputs: Inputs, commands: Commands, numbers: Any, choice: Choice, dtype: str
    ) -> dict[str, Any]:
        """Computes trajectories ``numbers`` [b] forward and back: outputs and gradients by name."""

        def upstream(outputs: Mapping[str, Any]) -> dict[str, Any]:
            if self.cost:  # d/dx of w · Σ x² is 2 w x
                grads = {n: 2.0 * w * outputs[n].astype(np.float64) for n, w in self.cost.items()}
            else:
                stored = self.upstream.items()
                grads = {n: load_array(take_trajectories(x, numbers)) for n, x in stored}
            return {name: np.asarray(grad, dtype) for name, grad in grads.items()}

        # upstream gradients may depend on the outputs, as those of a cost do
        outputs, grads = commands.pull_back(inputs, upstream, choice, dtype)
        arrays = dict(outputs)
        if self.cost:
            squares = {name: np.square(outputs[name], dtype=np.float64) for name in self.cost}
            # one axis of all values, which NumPy sums in pairs: rounding grows with log T · D
            count, rows, dofs = next(iter(squares.values())).shape
            sums = {name: x.reshape(count, rows * dofs).sum(1) for name, x in squares.items()}
            arrays["cost"] = sum(weight * sums[name] for name, weight in self.cost.items())
        if inputs.rates:  # the first recorded rate was moved from the actions to the start
            first = grads.pop(f"start_{QUANTITIES[inputs.mode.action_order]}")
            grads["actions"] = np.concatenate([first[:, None], grads["actions"]], 1)
        # d(factor · cost)/dx
        return arrays | {f"grad/{name}": self.factor * grad for name, grad in grads.items()}
