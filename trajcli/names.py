"""The words that calls and commands take for their choices, for type checkers and completion."""

from __future__ import annotations

from typing import Literal

# Aliases are among the modes, since a type checker knows no other words.
QuantityName = Literal["position", "velocity", "acceleration", "jerk"]
ModeName = Literal["acceleration", "acc", "jerk", "velocity", "clique", "position", "central",
                   "bspline", "teleport"]  # fmt: skip
MethodName = Literal["smooth", "savgol", "central", "backward"]
PaceName = Literal["uniform", "fastest"]
CurveName = Literal["hold", "linear", "ramp-and-hold", "cubic", "quintic"]
SchemeName = Literal["euler", "zoh", "foh"]
EndsName = Literal["plan", "goal"]
AlignmentName = Literal["full", "actions", "curobo"]
ConventionName = Literal["standard", "curobo"]
KindName = Literal["delta", "relative"]
FrameName = Literal["world", "body"]
DtypeName = Literal["float32", "float64"]
BackendName = Literal["auto", "native", "triton", "torch"]
