"""Tells torch of trajectories and states, whether it is imported before this package or after.

Between ``import trajcli, torch`` and ``torch.load(path, weights_only=True)`` nobody else is asked.
Without torch this is one more finder of modules, which leaves them to the others.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # a command answers signals before it imports typing

if TYPE_CHECKING:
    from typing import Any


class _Finder:
    """Finds torch as the other finders do, and registers the containers once it is executed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        finders = [x.find_spec for x in sys.meta_path if x is not self and hasattr(x, "find_spec")]
        spec: Any = next(filter(None, (find(name, path, target) for find in finders)), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                if module.__name__ == "torch":  # a loader may have several modules
                    register()

            spec.loader.exec_module = exec_module
        return spec


def register() -> None:
    """Registers the containers with torch, at once or when it is imported."""
    if sys.modules.get("torch") is None:
        sys.meta_path.insert(0, _Finder())
        return
    import trajcli.trajectory  # noqa: F401  # which defines them
    from trajcli import _container

    _container.register()
