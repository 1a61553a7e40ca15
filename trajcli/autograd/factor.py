"""Functions that leave values alone and change the gradients that pass through them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from trajcli.errors import Fault, UsageError


def scale_gradient(x: Tensor, factor: float | Tensor) -> Tensor:
    """x, bit for bit; gradients that flow back through it are multiplied by ``factor``.

    factor: a number or a tensor that broadcasts to x, in any unit; 0 and negative numbers are
    allowed. Forward-mode tangents are not scaled: the values are x's, and so is how they move.
    In a double backward the factor multiplies again, as the chain rule has it. The manner is
    that of torchlogix's GradFactor. Raises UsageError for a factor that requires a gradient,
    for there is none.
    """
    if not isinstance(factor, Tensor):
        factor = torch.as_tensor(factor, dtype=x.dtype, device=x.device)
    if factor.requires_grad:
        what = "the gradient factor has no gradient of its own"
        raise UsageError(Fault(what, "factor", hint="scale_gradient(x, factor.detach())"))
    if torch.broadcast_shapes(x.shape, factor.shape) != x.shape:
        found = str(tuple(factor.shape))
        raise UsageError(
            Fault("the factor does not broadcast", "factor", str(tuple(x.shape)), found)
        )
    scaled: Tensor = _ScaleGradient.apply(x, factor)
    return scaled


def clip_gradient(x: Tensor, *, norm: float | None = None, value: float | None = None) -> Tensor:
    """x, bit for bit; gradients that flow back are clipped, each trajectory's on its own.

    x [B, ...]. norm: the largest Euclidean norm of one trajectory's gradient, which is scaled
    down to it; value: the largest absolute value of an entry. None (the default) clips nothing;
    with both, values are clipped first. A clipped gradient is no derivative of anything, so a
    second one through it is that of the clipping.
    """
    for name, bound in (("norm", norm), ("value", value)):
        if bound is not None and not bound >= 0:
            raise UsageError(Fault("a bound that is negative or NaN", name, ">= 0", str(bound)))
    if norm is None and value is None:
        return x
    clipped: Tensor = _ClipGradient.apply(x, norm, value)
    return clipped


class _ScaleGradient(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, factor: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (factor,) = ctx.saved_tensors
        return (grad * factor).to(grad.dtype), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: Any) -> Tensor:
        return tangent.view_as(tangent)


class _ClipGradient(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, norm: float | None, value: float | None) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.bounds = inputs[1:]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        norm, value = ctx.bounds
        if value is not None:
            grad = grad.clamp(-value, value)
        if norm is not None:
            inner = tuple(range(1, grad.ndim))
            length = (grad * grad).sum(inner, keepdim=True).sqrt() if inner else grad.abs()
            grad = grad * torch.where(length > norm, norm / length, 1.0)
        return grad, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return tangent.view_as(tangent)
