"""Integrates batches of action sequences into trajectories: positions and their derivatives.

The library begins with ``trajcli.integrate(actions, start, dt, mode=...)`` and
``trajcli.differentiate(positions, dt=...)``; the command is ``trajcli``. Importing this package
imports neither torch nor h5py.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # a command answers signals before it imports typing

if sys.platform == "win32":
    raise ImportError("trajcli does not run on Windows itself: install it in WSL (wsl --install)")

if TYPE_CHECKING:
    from typing import Any

    from trajcli.autograd import clip_gradient, scale_gradient
    from trajcli.calls import differentiate, integrate, prepare
    from trajcli.curves.fitting import fit
    from trajcli.curves.resampling import resample
    from trajcli.curves.retiming import retime
    from trajcli.errors import DataError, InputError, OutputError, TrajcliError, UsageError
    from trajcli.matrices import operator
    from trajcli.scores import score
    from trajcli.trajectory import State, Trajectory, concatenate, load, sample

__version__ = "0.1.0"

__all__ = ["DataError", "InputError", "OutputError", "State", "TrajcliError", "Trajectory",
           "UsageError", "clip_gradient", "concatenate", "differentiate", "fit", "integrate",
           "load", "operator", "prepare", "resample", "retime", "sample", "scale_gradient",
           "score"]  # fmt: skip

# Modules that are attributes of the package without being imported.
_PUBLIC = ("errors", "matrices", "modes", "rotations")
# The modules that define public names; all other names are in errors.
_MODULES = {
    "autograd": {"clip_gradient", "scale_gradient"},
    "curves.fitting": {"fit"},
    "matrices": {"operator"},
    "curves.resampling": {"resample"},
    "curves.retiming": {"retime"},
    "scores": {"score"},
    "calls": {"differentiate", "integrate", "prepare"},
    "trajectory": {"State", "Trajectory", "concatenate", "load", "sample"},
}


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return import_module(f"trajcli.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'trajcli' has no attribute {name!r}")
    module = next((home for home, names in _MODULES.items() if name in names), "errors")
    value = globals()[name] = getattr(import_module(f"trajcli.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_PUBLIC, "__version__"])


def _register() -> None:
    """Registers containers and operators with torch, at once or when torch is imported."""
    # not at the first call: torch.load(path, weights_only=True) and torch.export.load need them
    # even if nothing else of trajcli is called
    torch = sys.modules.get("torch")
    if torch is None:
        sys.meta_path.insert(0, _Finder())
        return
    if not hasattr(torch.library, "register_vmap"):
        return  # torch before 2.5, which macOS on Intel processors has
    from trajcli import _container, _operators, trajectory  # noqa: F401

    _container.register(trajectory.State, trajectory.concatenate_states)
    _container.register(trajectory.Trajectory, trajectory.concatenate)


class _Finder:
    """Finds torch as other finders do, and registers the containers once it is executed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        others = (x.find_spec(name, path, target) for x in sys.meta_path if x is not self)
        spec: Any = next(filter(None, others), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = exec_module
        return spec


_register()
