"""The kernels in Triton, for CUDA devices; see :mod:`trajcli.kernels.program`.

They run on the current stream of their tensors' device, never wait for it and copy nothing from
the host but, once, a band's tables: so that once warm they can be captured in a CUDA graph. A
program's numbers of trajectories, actions and states are no part of what is compiled; the number
of dofs and the options of its mode are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trajcli.kernels.program import Gradients, Operands, Parts, Program


def forward(program: Program, operands: Operands, out: Parts) -> None:
    """Fill the outputs that are wanted."""
    from trajcli.kernels.triton_ops import launch

    launch.forward(program, operands, out)


def adjoint(program: Program, operands: Operands, upstream: Parts, gradients: Gradients) -> None:
    """Fill the gradients that are wanted from those of the outputs."""
    from trajcli.kernels.triton_ops import launch

    launch.adjoint(program, operands, upstream, gradients)


def probe(device: str) -> None:
    """Compile and run one tiny kernel on a device; raises whatever keeps that from working.

    It takes a C compiler, Python's headers, and a Triton that knows the card.
    """
    from trajcli.kernels.triton_ops import launch

    launch.probe(device)
