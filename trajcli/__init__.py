"""Integrate batches of action sequences into trajectories: positions and their derivatives.

``trajcli.integrate(actions, start, dt, mode=...)`` is the library; ``trajcli`` the command.
Importing this package imports neither torch nor h5py.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trajcli.autograd import clip_gradient, scale_gradient
    from trajcli.errors import (
        DataError,
        Fault,
        InputError,
        OutputError,
        Stopped,
        TrajcliError,
        UsageError,
    )
    from trajcli.modes import MODES
    from trajcli.operators import Csr, Operator, operator
    from trajcli.resampling import Resampled, resample
    from trajcli.retiming import Retimed, retime
    from trajcli.trajectory import State, Trajectory, integrate, load

__version__ = "0.1.0"

_HOMES = {
    "Csr": "operators",
    "DataError": "errors",
    "Fault": "errors",
    "InputError": "errors",
    "OutputError": "errors",
    "Stopped": "errors",
    "TrajcliError": "errors",
    "UsageError": "errors",
    "MODES": "modes",
    "Operator": "operators",
    "Resampled": "resampling",
    "Retimed": "retiming",
    "State": "trajectory",
    "Trajectory": "trajectory",
    "clip_gradient": "autograd",
    "integrate": "trajectory",
    "load": "trajectory",
    "operator": "operators",
    "resample": "resampling",
    "retime": "retiming",
    "scale_gradient": "autograd",
}

__all__ = [
    "MODES",
    "Csr",
    "DataError",
    "Fault",
    "InputError",
    "Operator",
    "OutputError",
    "Resampled",
    "Retimed",
    "State",
    "Stopped",
    "TrajcliError",
    "Trajectory",
    "UsageError",
    "clip_gradient",
    "integrate",
    "load",
    "operator",
    "resample",
    "retime",
    "scale_gradient",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trajcli' has no attribute {name!r}")
    return getattr(import_module(f"trajcli.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
