"""The kernels in Triton, for CUDA devices; see :mod:`trajcli.kernels.program`.

They run on the current stream of their tensors' device and never wait for it. From the host they
copy a band's tables, once: a warm call can be captured in a CUDA graph. Kernels are compiled per
number of dofs and options of the mode, not per number of trajectories, actions and states.
"""

from trajcli.kernels.triton_ops.launch import adjoint, by_torch, forward, probe

__all__ = ["adjoint", "by_torch", "forward", "probe"]
