"""Containers of arrays: what trajectories and states have in common, and what torch knows of them.

Importing this does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from trajcli.arrays import cast, eager, is_torch, to_numpy
from trajcli.errors import UsageError
from trajcli.kernels.program import Array
from trajcli.modes import QUANTITIES

if TYPE_CHECKING:
    from typing_extensions import Self

_FLOATS = ("float16", "bfloat16", "float32", "float64")


class Container:
    """The base of frozen dataclasses (``eq=False``) of arrays, text and options.

    Two are equal where all values are, NaN being equal to NaN; library, device and type do not
    matter. This is one bool. They have no hash.
    """

    # The fields that are lists of words; other lists are arrays.
    words: ClassVar[tuple[str, ...]] = ()
    # The names of its leaves, where some of these are None, as in ``in_dims`` of torch.func.vmap.
    _leaves = None

    def to(self, target: Any) -> Self:
        """Moves it to a device, as tensors, or casts position to jerk to another type.

        ``to("cuda")``, ``to(torch.float64)``. Times stay float64. Raises UsageError for a type that
        rows do not have.
        """
        name = str(getattr(target, "__name__", target)).removeprefix("torch.")
        if name in _FLOATS:
            return self._mapped(lambda x: cast(x, name), QUANTITIES)
        from torch import as_tensor, dtype

        if is_torch(target):
            return self.to(target.dtype).to(target.device)
        if isinstance(target, dtype | type | np.dtype):
            expected = f"a device, or {', '.join(_FLOATS)}"
            raise UsageError("not a type of rows", where="to", expected=expected, found=name)
        # a copy of NumPy arrays, as a tensor may be written into
        return self._mapped(lambda x: as_tensor(x if is_torch(x) else np.array(x)).to(target))

    def cpu(self) -> Self:
        """Moves its tensors to the host's memory."""
        return self._mapped(lambda x: x.cpu() if is_torch(x) else x)

    def detach(self) -> Self:
        """Detaches its tensors from the graph of gradients."""
        return self._mapped(lambda x: x.detach() if is_torch(x) else x)

    @eager
    def numpy(self) -> Self:
        """Converts it to NumPy arrays, without gradients."""
        return self._mapped(to_numpy)

    def clone(self) -> Self:
        """Copies it to memory of its own. Differentiable."""
        return self._mapped(lambda x: x.clone() if is_torch(x) else x.copy())

    def _fields(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def _arrays(self) -> dict[str, Array]:
        """Collects the fields that are neither None nor text or options, by name."""
        values = self._fields().items()
        return {
            k: x for k, x in values
            if not (x is None or k in self.words or isinstance(x, str | Mapping))
        }  # fmt: skip

    def _mapped(self, function: Callable[[Array], Array], names: Any = None) -> Self:
        arrays = self._arrays().items()
        results: dict[str, Any] = {k: function(x) for k, x in arrays if not names or k in names}
        return replace(self, **results)  # type: ignore[type-var]

    # values are read, which Dynamo cannot trace
    @eager
    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return equal(self._fields(), other._fields())

    __hash__ = None  # type: ignore[assignment]

    def __getstate__(self) -> dict[str, Any]:
        return {k: _plain(x) if isinstance(x, Mapping) else x for k, x in self._fields().items()}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(_restored(state))


def equal(one: Any, other: Any) -> bool:
    """Compares values, within mappings too; NaN is equal to NaN."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(x, other[key]) for key, x in one.items())
    if isinstance(one, str) and isinstance(other, str):
        return one == other
    one, other = to_numpy(one), to_numpy(other)
    # NaN alone differs from itself
    same = one.shape == other.shape
    return same and bool(((one == other) | ((one != one) & (other != other))).all())


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Makes options plain, as torch.load and JSON take them: tables are bytes, type and shape."""
    plain = {}
    for name, value in options.items():
        if getattr(value, "shape", ()):
            table = to_numpy(value)
            table = table.astype(np.float64 if table.dtype.kind == "f" else np.int64)
            value = [table.tobytes().hex(), table.dtype.name, *table.shape]
        plain[name] = value.item() if isinstance(value, np.generic) else value
    return plain


def _restored(state: Mapping[str, Any]) -> dict[str, Any]:
    restored = dict(state)
    for name, options in state.items():
        if isinstance(options, Mapping):
            restored[name] = {
                key: np.frombuffer(bytearray.fromhex(x[0]), x[1]).reshape(x[2:])
                if isinstance(x, list) else x for key, x in options.items()
            }  # fmt: skip
    return restored


def register(cls: Any, join: Callable[[Any], Any]) -> None:
    """Makes a class of containers a pytree, readable by torch.load, and joined by a DataLoader."""
    import torch
    from torch.utils._pytree import SUPPORTED_NODES, GetAttrKey, register_pytree_node
    from torch.utils.data._utils.collate import default_collate_fn_map

    if cls in SUPPORTED_NODES:
        return

    def flatten(container: Any) -> tuple[list[Any], list[Any]]:
        names = container._leaves or [*container._arrays()]
        leaves = {name: getattr(container, name) for name in names}
        # plain values, which can be compared and dumped
        others = {k: x for k, x in container.__getstate__().items() if k not in leaves}
        return [*leaves.values()], [[*leaves], others]

    # torch names leaves by their fields in messages, as in those of torch.export
    def flatten_with_keys(container: Any) -> tuple[list[Any], list[Any]]:
        leaves, structure = flatten(container)
        return [*zip(map(GetAttrKey, structure[0]), leaves, strict=True)], structure

    def unflatten(leaves: Any, structure: list[Any]) -> Any:
        names, others = structure
        container = cls(**dict(zip(names, leaves, strict=True)), **_restored(others))
        # leaves that are None, as in ``in_dims``, must stay leaves of the structure
        if any(x is None for x in leaves):
            object.__setattr__(container, "_leaves", names)
        return container

    # a DataLoader calls this for the items of a batch
    def collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return join(batch)._mapped(torch.as_tensor)

    register_pytree_node(
        cls, flatten, unflatten, flatten_with_keys_fn=flatten_with_keys,
        serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
    )  # fmt: skip
    default_collate_fn_map[cls] = collate
    torch.serialization.add_safe_globals([cls])
