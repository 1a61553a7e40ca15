"""The kernels in Triton, for CUDA devices; see :mod:`trajcli.kernels.program`.

They run on the current stream of their tensors' device and never wait for it. From the host they
copy a band's tables, once: a warm call can be captured in a CUDA graph. Kernels are compiled per
number of dofs and options of the mode, not per number of trajectories, actions and states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trajcli.kernels.program import Smoother

if TYPE_CHECKING:
    from trajcli.kernels.program import Gradients, Operands, Parts, Program


def forward(program: Program, operands: Operands, out: Parts) -> None:
    """Fill the outputs that are wanted; those of a smoother by torch."""
    if isinstance(program, Smoother):
        from trajcli.kernels import torch_ops

        torch_ops.forward(program, operands, out)
        return
    from trajcli.kernels.triton_ops import launch

    launch.forward(program, operands, out)


def adjoint(program: Program, operands: Operands, upstream: Parts, gradients: Gradients) -> None:
    """Fill the gradients that are wanted of the inputs; those of a smoother by torch."""
    if isinstance(program, Smoother):
        from trajcli.kernels import torch_ops

        torch_ops.adjoint(program, operands, upstream, gradients)
        return
    from trajcli.kernels.triton_ops import launch

    launch.adjoint(program, operands, upstream, gradients)


def probe(device: str) -> None:
    """Compile and run one tiny kernel on a device; raises what prevents it.

    That needs a C compiler, Python's headers, and a Triton that supports the card.
    """
    from trajcli.kernels.triton_ops import launch

    launch.probe(device)
