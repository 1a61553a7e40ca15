"""Commands: increments, offsets, or absolute positions, as of a gripper, in place of actions.

Turning them into actions needs start states and rows of another mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.arrays import float64, match_library, replace_dofs
from trajcli.errors import Fault
from trajcli.inputs import Inputs
from trajcli.kernels.choose import Choice
from trajcli.modes import QUANTITIES, Mode
from trajcli.modes.cascade import Clique

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Commands:
    """Says what the actions in files stand for, where they are not the actions of the mode.

    Attributes:
        actions: "delta", increments from one step to the next; "relative", offsets from the start
            position; None, the actions of the mode.
        absolute: dofs whose actions are positions, whatever the mode and ``actions``. Their rows
            are those of mode clique: the positions and their differences. Where a mode has not one
            row for each action (bspline, cuRobo's central), they are the mode's own.
        turning: dofs that are rotations, which are no sums.
    """

    actions: str | None = None
    absolute: Sequence[int] = ()
    turning: Sequence[int] = ()

    def select_dofs(self, dofs: Sequence[int]) -> Commands:
        """Selects the commands of some dofs, none of which is a rotation."""
        # numbers are now those among the selected dofs
        absolute = [dofs.index(dof) for dof in self.absolute if dof in dofs]
        return Commands(self.actions, absolute)

    def options(self) -> dict[str, str]:
        """Returns the options as texts, for reports and attributes; absent ones are left out."""
        dofs = ",".join(map(str, self.absolute))
        texts = {"actions": self.actions or "", "absolute": dofs}
        return {name: text for name, text in texts.items() if text}

    def faults(self, mode: Mode, where: str) -> Iterator[Fault]:
        """Yields the fault of commands that a mode does not take."""
        if self.actions and mode.action_order:
            yield Fault(
                f"{self.actions} actions are positions",
                where=where,
                expected="clique, central, teleport or bspline",
                found=f"mode {mode.name}",
            )

    def mode_inputs(self, inputs: Inputs) -> Inputs:
        """Turns the commands of a block into the actions of the mode; sums are float64."""
        if self.actions is None:
            return inputs
        actions, index = float64(inputs.actions), inputs.start_index
        start = float64(match_library(inputs.start["position"], actions, "start/position"))
        if index is not None and len(start) > 1:
            start = start[match_library(index, actions, "start_index")]
        # p_t = p_0 + Σ_{s ≤ t} delta_s, or p_0 + offset_t. Overflow is found in the sums
        with np.errstate(over="ignore", invalid="ignore"):
            total = actions.cumsum(1) if self.actions == "delta" else actions
            positions = start[:, None] + total
        unchanged = [*self.absolute, *self.turning]
        return replace(inputs, actions=replace_dofs(positions, unchanged, actions[..., unchanged]))

    def from_positions(self, positions: Any) -> Any:
        """Computes the commands [b, T - 1, D] of positions: :meth:`mode_inputs` inverted."""
        rows = float64(positions)
        ends, origin = rows[:, 1:], rows[:, :-1] if self.actions == "delta" else rows[:, :1]
        return replace_dofs(ends - origin, self.absolute, ends[..., list(self.absolute)])

    def clique_dofs(self, inputs: Inputs) -> list[int]:
        """Lists the dofs whose rows are computed by mode clique instead of the mode."""
        mode, clique = inputs.mode, clique_like(inputs.mode)
        # row counts grow linearly with the horizon: two horizons tell whether they are the same
        same = all(
            mode.row_count(horizon, inputs.recorded) == clique.row_count(horizon, inputs.recorded)
            for horizon in (1, 2)
        )
        return list(self.absolute) if same and mode != clique else []

    def write_clique_rows(
        self, outputs: Arrays, inputs: Inputs, choice: Choice, dtype: str
    ) -> None:
        """Writes the rows of :meth:`clique_dofs` into outputs of the mode, in place."""
        dofs = self.clique_dofs(inputs)
        if not dofs:
            return
        clique = replace(select_dofs(inputs, dofs), mode=clique_like(inputs.mode))
        rows = clique.compute(choice, dtype, QUANTITIES)
        for name, values in outputs.items():
            if name in rows:
                replace_dofs(values, self.absolute, rows[name])

    def pull_back(
        self, inputs: Inputs, upstream: Callable[[Arrays], Arrays], choice: Choice, dtype: str
    ) -> tuple[Arrays, dict[str, Any]]:
        """Computes outputs, and gradients by the commands, as :func:`adjoint.pull_back` does."""
        from trajcli.adjoint import pull_back

        # the cost is of rows of both modes: it is asked once, and its gradients are shared out
        clique_dofs, cost_gradients = self.clique_dofs(inputs), dict[str, Any]()

        def mode_gradients(outputs: Arrays) -> Arrays:
            self.write_clique_rows(outputs, inputs, choice, dtype)
            cost_gradients.update(upstream(outputs))
            if not clique_dofs:
                return cost_gradients
            return {name: _zero_columns(x, clique_dofs) for name, x in cost_gradients.items()}

        def clique_gradients(_: Arrays) -> Arrays:
            columns = (np.ascontiguousarray(x[..., clique_dofs]) for x in cost_gradients.values())
            return dict(zip(cost_gradients, columns, strict=True))

        outputs, grads = pull_back(inputs, mode_gradients, choice, dtype)
        if clique_dofs:
            clique = replace(select_dofs(inputs, clique_dofs), mode=clique_like(inputs.mode))
            _, others = pull_back(clique, clique_gradients, choice, dtype)
            for name, grad in others.items():
                # dt is shared, so its gradients add up; actions and states are by dof
                if name == "dt":
                    grads[name] = grads[name] + grad
                else:
                    grads[name] = np.array(grads[name])
                    grads[name][..., clique_dofs] = grad
        if self.actions:
            # p_t = p_0 + Σ_{s ≤ t} delta_s: the gradient of p_0 is the sum over t of those of
            # p_t, that of delta_s the sum over t ≥ s
            grad = _zero_columns(grads["actions"], self.absolute)
            grads["start_position"] = grads["start_position"] + grad.sum(1)
            if self.actions == "delta":
                grad = np.cumsum(grad[:, ::-1], 1)[:, ::-1]
            grad[..., list(self.absolute)] = grads["actions"][..., list(self.absolute)]
            grads["actions"] = grad
        return outputs, grads


def select_dofs(inputs: Inputs, dofs: Sequence[int]) -> Inputs:
    """Selects some of the dofs of a block's inputs, without a goal state."""
    # a goal belongs to modes whose rows are not those of clique
    start = {part: np.take(values, dofs, -1) for part, values in inputs.start.items()}
    actions, mode = np.take(inputs.actions, dofs, -1), inputs.mode.select_dofs(dofs)
    return replace(inputs, mode=mode, actions=actions, start=start, goal={}, goal_index=None)


def clique_like(mode: Mode) -> Clique:
    """Makes mode clique with the options that it shares with a mode, and so with its rows."""
    options = mode.options()
    return Clique(**{name: options[name] for name in Clique.option_names() if name in options})


def _zero_columns(values: Any, columns: Sequence[int]) -> Any:
    masked = np.array(values)
    masked[..., list(columns)] = 0.0
    return masked
