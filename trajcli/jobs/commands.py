"""Commands as robots are given them: increments or offsets of positions, and a gripper's positions.

Both are functions of the inputs of one block, and so are their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trajcli.errors import Fault
from trajcli.inputs import Inputs
from trajcli.kernels.choose import Choice
from trajcli.modes import PARTS, Mode
from trajcli.modes.teleport import Teleport

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Commands:
    """What the numbers in the files are.

    actions: "delta", increments from one step to the next, or "relative", offsets from the start
    position; None: what the mode takes. as_position: dofs whose actions are positions whatever the
    mode, and whose rows are those of mode teleport. wrapped: dofs that are angles, which wrap.
    """

    actions: str | None = None
    as_position: Sequence[int] = ()
    wrapped: Sequence[int] = ()

    def options(self) -> dict[str, str]:
        """What is said of them, by option."""
        dofs = ",".join(map(str, self.as_position))
        stated = {"actions": self.actions or "", "as_position": dofs}
        return {name: text for name, text in stated.items() if text}

    def faults(self, mode: Mode, recorded: bool) -> list[Fault]:
        """Why there are no such commands of a mode."""
        found, name = [], f"mode {mode.name}"
        if self.actions and mode.derivatives_of:
            what, expected = f"{self.actions} actions are positions", "clique, central, teleport"
            found.append(Fault(what, "--actions", f"{expected} or bspline", name))
        if self.actions and recorded:
            hint = "--start zero, NUMBERS or FILE says where they begin"
            found.append(Fault("no start position", "--actions", "a start state", "none", hint))
        rows = _teleport(mode).rows(1, recorded)
        bands = mode.name in ("central", "bspline", "savgol")
        curobo = bands and getattr(mode, "convention", "") == "curobo"
        if self.as_position and (mode.rows(1, recorded) != rows or curobo):
            what, expected = "its rows are not one for each action", "another mode"
            found.append(Fault(what, "--as-position", expected, name))
        return found

    def used(self, inputs: Inputs) -> Inputs:
        """A block's inputs with the actions that the mode takes, float64 where they are sums."""
        if self.actions is None:
            return inputs
        start, index = np.asarray(inputs.start["position"], np.float64), inputs.start_index
        if index is not None and len(start) > 1:
            start = start[np.asarray(index)]
        actions = np.asarray(inputs.actions, np.float64)
        with np.errstate(over="ignore", invalid="ignore"):  # which is found in the sums
            total = np.cumsum(actions, 1) if self.actions == "delta" else actions
            return replace(inputs, actions=start[:, None] + total)

    def positions(self, inputs: Inputs, choice: Choice, dtype: str) -> Arrays:
        """The rows [b, T, n] of the dofs whose actions are positions; nothing without any."""
        if not self.as_position:
            return {}
        return _columns(inputs, self.as_position).compute(choice, dtype, PARTS)

    def pull_back(
        self,
        inputs: Inputs,
        upstream: Callable[[Arrays], Arrays],
        choice: Choice,
        dtype: str,
        wrt: Sequence[str],
    ) -> tuple[Arrays, dict[str, Any]]:
        """As :func:`trajcli.adjoint.pull_back`, by the actions as they are in the files."""
        from trajcli.adjoint import pull_back

        needed = [*wrt, "actions"] if self.actions and "actions" not in wrt else wrt
        chosen, pulled = list(self.as_position), dict[str, Any]()

        def of_mode(outputs: Arrays) -> Arrays:
            self.put(outputs, self.positions(inputs, choice, dtype))
            pulled.update(upstream(outputs))
            return {n: _without(v, chosen) for n, v in pulled.items()} if chosen else pulled

        def of_positions(_: Arrays) -> Arrays:
            return {n: np.ascontiguousarray(v[..., chosen]) for n, v in pulled.items()}

        outputs, grads = pull_back(inputs, of_mode, choice, dtype, needed)
        if chosen:
            _, others = pull_back(_columns(inputs, chosen), of_positions, choice, dtype, needed)
            for name, grad in others.items():
                if name != "dt":  # on which positions do not depend
                    grads[name] = np.array(grads[name])
                    grads[name][..., chosen] = grad
        if self.actions and "start" in wrt:
            grads["start_position"] = grads["start_position"] + grads["actions"].sum(1)
        if self.actions == "delta":
            grads["actions"] = np.cumsum(grads["actions"][:, ::-1], 1)[:, ::-1]
        if "actions" not in wrt:
            grads.pop("actions", None)
        return outputs, grads

    def put(self, outputs: Arrays, positions: Arrays) -> None:
        """Put the rows of the dofs that are positions in their place."""
        for name, values in outputs.items():
            if name in positions:
                values[..., list(self.as_position)] = positions[name]


def _columns(inputs: Inputs, dofs: Sequence[int]) -> Inputs:
    """These dofs of a block's inputs, by mode teleport."""
    columns = list(dofs)
    start = {name: np.asarray(part)[:, columns] for name, part in inputs.start.items()}
    actions, mode = np.take(inputs.actions, columns, -1), _teleport(inputs.mode)
    return replace(inputs, mode=mode, actions=actions, start=start, goal={}, goal_index=None)


def _teleport(mode: Mode) -> Teleport:
    return Teleport(getattr(mode, "frames", "full"))


def _without(values: Any, columns: Sequence[int]) -> Any:
    masked = np.array(values)
    masked[..., columns] = 0.0
    return masked
