"""Commands as robots are given them: increments or offsets, and a gripper's absolute positions.

Both are functions of the inputs of one block, and so are their gradients: the sums begin at start
states, and absolute dofs have rows of another mode, of which files and Trajectories know nothing.
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
from trajcli.modes.cascade import Clique

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Commands:
    """What the numbers in the files are.

    actions: "delta", increments from one step to the next, or "relative", offsets from the start
    position; None: what the mode takes. absolute: dofs whose actions are positions, whatever the
    mode and ``actions``. Their rows are those of mode clique, the positions and their differences;
    where a mode's rows are not one for each action (bspline, cuRobo's central), the mode's own.
    """

    actions: str | None = None
    absolute: Sequence[int] = ()

    def options(self) -> dict[str, str]:
        """What is said of them, by option."""
        dofs = ",".join(map(str, self.absolute))
        stated = {"actions": self.actions or "", "absolute": dofs}
        return {name: text for name, text in stated.items() if text}

    def faults(self, mode: Mode) -> list[Fault]:
        """Why there are no such commands of a mode."""
        found, name = [], f"mode {mode.name}"
        if self.actions and mode.derivatives_of:
            expected = "clique, central, teleport"
            found.append(
                Fault(
                    f"{self.actions} actions are positions",
                    where="--actions",
                    expected=f"{expected} or bspline",
                    found=name,
                )
            )
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
            used = start[:, None] + total
        used[..., list(self.absolute)] = actions[..., list(self.absolute)]
        return replace(inputs, actions=used)

    def apart(self, inputs: Inputs) -> list[int]:
        """The dofs whose rows are not those of the mode."""
        if not self.absolute or isinstance(inputs.mode, Clique):
            return []
        mode, clique = inputs.mode, _clique(inputs.mode)
        same = all(mode.rows(n, inputs.recorded) == clique.rows(n, inputs.recorded) for n in (1, 2))
        return list(self.absolute) if same else []

    def positions(self, inputs: Inputs, choice: Choice, dtype: str) -> Arrays:
        """The rows [b, T, n] of the dofs that :meth:`apart` names; nothing without any."""
        apart = self.apart(inputs)
        return _columns(inputs, apart).compute(choice, dtype, PARTS) if apart else {}

    def pull_back(
        self,
        inputs: Inputs,
        upstream: Callable[[Arrays], Arrays],
        choice: Choice,
        dtype: str,
    ) -> tuple[Arrays, dict[str, Any]]:
        """As :func:`trajcli.adjoint.pull_back`, by the actions as they are in the files."""
        from trajcli.adjoint import pull_back

        chosen, pulled = self.apart(inputs), dict[str, Any]()

        def of_mode(outputs: Arrays) -> Arrays:
            self.put(outputs, self.positions(inputs, choice, dtype))
            pulled.update(upstream(outputs))
            return {n: _without(v, chosen) for n, v in pulled.items()} if chosen else pulled

        def of_positions(_: Arrays) -> Arrays:
            return {n: np.ascontiguousarray(v[..., chosen]) for n, v in pulled.items()}

        outputs, grads = pull_back(inputs, of_mode, choice, dtype)
        if chosen:
            _, others = pull_back(_columns(inputs, chosen), of_positions, choice, dtype)
            for name, grad in others.items():
                if name == "dt":
                    grads[name] = grads[name] + grad
                else:
                    grads[name] = np.array(grads[name])
                    grads[name][..., chosen] = grad
        if self.actions:
            grad = _without(grads["actions"], self.absolute)
            grads["start_position"] = grads["start_position"] + grad.sum(1)
            if self.actions == "delta":
                grad = np.cumsum(grad[:, ::-1], 1)[:, ::-1]
            grad[..., list(self.absolute)] = grads["actions"][..., list(self.absolute)]
            grads["actions"] = grad
        return outputs, grads

    def put(self, outputs: Arrays, positions: Arrays) -> None:
        """Put the rows of :meth:`positions` in their place."""
        for name, values in outputs.items():
            if name in positions:
                values[..., list(self.absolute)] = positions[name]


def _columns(inputs: Inputs, dofs: Sequence[int]) -> Inputs:
    """These dofs of a block's inputs, by mode clique."""
    columns = list(dofs)
    start = {name: np.asarray(part)[:, columns] for name, part in inputs.start.items()}
    actions, mode = np.take(inputs.actions, columns, -1), _clique(inputs.mode)
    return replace(inputs, mode=mode, actions=actions, start=start, goal={}, goal_index=None)


def _clique(mode: Mode) -> Clique:
    """Clique with the rows, and in a cascade with the steps, of a mode."""
    convention = getattr(mode, "convention", "") if mode.derivatives_of else "standard"
    return Clique(frames=getattr(mode, "frames", "full"), convention=convention)


def _without(values: Any, columns: Sequence[int]) -> Any:
    masked = np.array(values)
    masked[..., list(columns)] = 0.0
    return masked
