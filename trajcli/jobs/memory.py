"""How many trajectories are computed at once, by the memory that they take."""

from __future__ import annotations

from trajcli.jobs.inputs import LengthInputs
from trajcli.kernels.choose import Choice
from trajcli.kernels.cuda import free_bytes

_BYTES_PER_ELEMENT = {"native": 64, "torch": 512, "triton": 64, "torch on a device": 512}
"""Working memory for each action: a block in, four out; torch keeps some 60 float64 on the way.
A device has as much of its own."""
_BLOCK_ELEMENTS = {
    "native": 1 << 20, "torch": 1 << 17, "triton": 1 << 23, "torch on a device": 1 << 22
}  # fmt: skip
"""More gains nothing, or leaves the processor's caches and runs slower."""
_SHARE_OF_FREE = 0.8
"""Of a device's free memory, what blocks are to take."""
_BYTES_PER_STEP = 64
"""For each row of trajectories with steps of their own: the step and the sum that is its time."""


def working_memory(choice: Choice, gradient: bool, memory: int) -> tuple[str, int]:
    """What a block's memory is counted for, and how much there is: on a device no more than most
    of what is free there."""
    kind = "torch" if gradient else choice.backend
    if choice.device == "cpu":
        return ("torch" if kind == "triton" else kind), memory
    kind = "torch on a device" if kind == "torch" else kind
    return kind, min(memory, int(_SHARE_OF_FREE * free_bytes(choice.device)))


def block_size(part: LengthInputs, kind: str, memory: int) -> int:
    """How many trajectories are computed at once."""
    room = min(_BLOCK_ELEMENTS[kind] * _BYTES_PER_ELEMENT[kind], memory)
    return int(max(1, min(room // working_bytes(part, kind), len(part.trajectories))))


def working_bytes(part: LengthInputs, kind: str) -> int:
    """Working memory for the rows of the mode of one trajectory."""
    inputs = part.inputs
    _, horizon, dofs = inputs.actions.shape
    steps_differ = inputs.uneven and inputs.steps_differ
    per_row = dofs * _BYTES_PER_ELEMENT[kind] + (_BYTES_PER_STEP if steps_differ else 0)
    return int(max(horizon, inputs.rows) * per_row)
