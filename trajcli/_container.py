"""Containers of arrays: what trajectories and states have in common, and what torch knows of them.

Once torch is there, each is a pytree of it, is collated by its DataLoader, and is read by
``torch.load(weights_only=True)``. Importing this does not import it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from trajcli.arrays import cast, is_torch, to_numpy
from trajcli.kernels.program import Array
from trajcli.modes import QUANTITIES

if TYPE_CHECKING:
    from typing_extensions import Self

_BYTES = "bytes of an array"
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_unregistered: list[Any] = []


class Container:
    """The base of frozen dataclasses (``eq=False``) of arrays and constants.

    Two are equal where all values are, NaN being equal to NaN; library, device and type do not
    matter. This is one bool. They have no hash.
    """

    constants: ClassVar[tuple[str, ...]] = ()
    """The names of the fields that are no arrays."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _unregistered.append(cls)
        if sys.modules.get("torch") is not None:
            register()

    @classmethod
    def collate(cls, batch: Sequence[Any]) -> Any:
        """Returns a batch of what a DataLoader has read, as one."""
        raise NotImplementedError

    def to(
        self, *target: Any, device: Any = None, dtype: Any = None, non_blocking: bool = False
    ) -> Self:
        """Returns it on a device as tensors, or with position to jerk of another type, or both:
        ``to("cuda")``, ``to(torch.float64)``, ``to("cpu", "float32")``. Times stay float64."""
        for one in target:
            device, dtype = (device, one) if _name(one) in _FLOATS else (one, dtype)

        def converted(name: str, values: Array) -> Array:
            if device is not None:
                from torch import as_tensor

                if not is_torch(values):  # a tensor may be written into
                    values = np.require(values, requirements=["C", "W"])
                values = as_tensor(values).to(device, non_blocking=non_blocking)
            return values if dtype is None or name not in QUANTITIES else cast(values, _name(dtype))

        return self._converted(converted)

    def cpu(self) -> Self:
        """Returns it with tensors in the host's memory."""
        return self._converted(lambda name, x: x.cpu() if is_torch(x) else x)

    def detach(self) -> Self:
        """Returns it without gradients."""
        return self._converted(lambda name, x: x.detach() if is_torch(x) else x)

    def numpy(self) -> Self:
        """Returns it as NumPy arrays, without gradients."""
        return self._converted(lambda name, x: to_numpy(x, name))

    def clone(self) -> Self:
        """Returns a copy with memory of its own. Differentiable."""
        return self._converted(lambda name, x: x.clone() if is_torch(x) else x.copy())

    def pin_memory(self) -> Self:
        """Returns it in pinned memory, as a DataLoader asks for."""
        return self._converted(lambda name, x: x.pin_memory() if is_torch(x) else x)

    def _arrays(self) -> dict[str, Any]:
        """Returns the fields that are neither constants nor None, by name."""
        values = self._fields().items()
        return {k: x for k, x in values if x is not None and k not in self.constants}

    def _converted(self, convert: Callable[[str, Array], Array]) -> Self:
        changed: dict[str, Any] = {}
        for name, value in self._arrays().items():
            if isinstance(value, Mapping):
                changed[name] = {key: convert(name, x) for key, x in value.items()}
            else:
                changed[name] = convert(name, value)
        return replace(self, **changed)  # type: ignore[type-var]

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return equal(self._fields(), other._fields())

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        return {k: _plain(x) if k in self.constants else x for k, x in self._fields().items()}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        constants = {name: _restored(state[name]) for name in self.constants}
        self.__dict__.update({**state, **constants})


def equal(one: Any, other: Any) -> bool:
    """Returns whether values are equal, within mappings too; NaN is equal to NaN."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(x, other[key]) for key, x in one.items())
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    if not (is_torch(one) and is_torch(other) and one.device == other.device):
        one, other = to_numpy(one), to_numpy(other)
    same = tuple(one.shape) == tuple(other.shape)
    return same and bool(((one == other) | ((one != one) & (other != other))).all())


def _name(kind: Any) -> str:
    """Returns the name of a type of NumPy or torch: float32."""
    return str(getattr(kind, "__name__", kind)).removeprefix("torch.")


def _plain(value: Any) -> Any:
    """Returns a constant with text for arrays, which torch.load and JSON refuse."""
    if isinstance(value, Mapping):
        return {name: _plain(x) for name, x in value.items()}
    if not hasattr(value, "tolist") or isinstance(value, np.generic):
        return value.item() if isinstance(value, np.generic) else value
    array = to_numpy(value)
    return {_BYTES: array.tobytes().hex(), "type": array.dtype.str, "shape": list(array.shape)}


def _restored(value: Any) -> Any:
    """Returns a constant with arrays for text that :func:`_plain` has made of them."""
    if not isinstance(value, Mapping):
        return value
    if _BYTES in value:
        array = np.frombuffer(bytes.fromhex(value[_BYTES]), value["type"])
        return array.reshape(value["shape"]).copy()
    return {name: _restored(x) for name, x in value.items()}


def register() -> None:
    """Tells torch of the containers that it does not know yet."""
    import torch

    if not hasattr(torch.serialization, "add_safe_globals"):  # before torch 2.4
        return
    from torch.utils._pytree import GetAttrKey, register_pytree_node
    from torch.utils.data._utils.collate import default_collate_fn_map

    def flatten(container: Any) -> tuple[list[Any], list[Any]]:
        leaves = container._arrays()
        # plain values, which can be compared and dumped
        others = {k: x for k, x in container.__getstate__().items() if k not in leaves}
        return [*leaves.values()], [[*leaves], others]

    def flatten_with_keys(container: Any) -> tuple[list[Any], list[Any]]:
        leaves, structure = flatten(container)
        return [*zip(map(GetAttrKey, structure[0]), leaves, strict=True)], structure

    def register_class(cls: Any) -> None:
        def unflatten(leaves: Any, structure: list[Any]) -> Any:
            names, others = structure
            return cls(**dict(zip(names, leaves, strict=True)), **_restored(others))

        def collate(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
            return cls.collate(batch)._converted(lambda name, x: torch.as_tensor(x))

        register_pytree_node(
            cls, flatten, unflatten, flatten_with_keys_fn=flatten_with_keys,
            serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
            to_dumpable_context=lambda structure: structure,
            from_dumpable_context=lambda structure: structure,
        )  # fmt: skip
        default_collate_fn_map[cls] = collate
        torch.serialization.add_safe_globals([cls])

    while _unregistered:
        register_class(_unregistered.pop())
