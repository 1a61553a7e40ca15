"""What the compiled kernels are asked to do: the structures of api.hpp."""

from __future__ import annotations

import ctypes

Int = ctypes.c_int64
Pointer = ctypes.c_void_p


class Cascade(ctypes.Structure):
    _fields_ = (
        ("batch", Int),
        ("horizon", Int),
        ("dofs", Int),
        ("actions", Pointer),
        ("actions_stride", Int),
        ("actions_type", Int),
        ("state_hi", Pointer * 4),
        ("state_lo", Pointer * 4),
        ("state_stride", Int),
        ("dt", Pointer),
        ("dt_trajectory_stride", Int),
        ("dt_step_stride", Int),
        ("order", Int),
        ("scheme", Int),
        ("start_row", Int),
        ("out", Pointer * 4),
        ("out_stride", Int),
        ("out_type", Int),
        ("end_hi", Pointer * 4),
        ("end_lo", Pointer * 4),
    )


class CascadeAdjoint(ctypes.Structure):
    _fields_ = (
        ("batch", Int),
        ("horizon", Int),
        ("dofs", Int),
        ("upstream", Pointer * 4),
        ("upstream_stride", Int),
        ("upstream_type", Int),
        ("end", Pointer * 4),
        ("dt", Pointer),
        ("dt_trajectory_stride", Int),
        ("dt_step_stride", Int),
        ("order", Int),
        ("scheme", Int),
        ("sources", Pointer * 4),
        ("sources_stride", Int),
        ("sources_type", Int),
        ("state", Pointer * 4),
    )


class Band(ctypes.Structure):
    _fields_ = (
        ("batch", Int),
        ("horizon", Int),
        ("dofs", Int),
        ("actions", Pointer),
        ("actions_stride", Int),
        ("actions_type", Int),
        ("head_hi", Pointer),
        ("head_lo", Pointer),
        ("head", Int),
        ("head_stride", Int),
        ("head_row", Int),
        ("tail_hi", Pointer),
        ("tail_lo", Pointer),
        ("tail", Int),
        ("tail_stride", Int),
        ("tail_row", Int),
        ("table_hi", Pointer),
        ("table_lo", Pointer),
        ("table_stride", Int),
        ("width", Int),
        ("rows", Int),
        ("unit", Pointer),
        ("unit_whole", Int),
        ("scale", Pointer),
        ("scale_stride", Int),
        ("first", Pointer),
        ("phase", Pointer),
        ("start", Pointer * 4),
        ("start_stride", Int),
        ("out", Pointer * 4),
        ("out_stride", Int),
        ("out_type", Int),
    )


class BandAdjoint(ctypes.Structure):
    _fields_ = (
        ("batch", Int),
        ("horizon", Int),
        ("dofs", Int),
        ("upstream", Pointer * 4),
        ("upstream_stride", Int),
        ("upstream_type", Int),
        ("head", Int),
        ("tail", Int),
        ("table", Pointer),
        ("table_stride", Int),
        ("width", Int),
        ("rows", Int),
        ("first", Pointer),
        ("phase", Pointer),
        ("actions", Pointer),
        ("actions_stride", Int),
        ("actions_type", Int),
        ("head_grad", Pointer),
        ("tail_grad", Pointer),
    )
