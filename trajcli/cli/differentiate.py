"""trajcli differentiate: differentiates recorded positions."""

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console
from trajcli.cli.integrate import run_request

EXAMPLE = """
Examples, on files in sample_data:

    trajcli differentiate sample_data/recorded.h5 -o out.h5

    trajcli differentiate sample_data/recorded.h5:position --window 0.3s -o savgol.h5

    trajcli differentiate sample_data/recorded.h5:position --method central -o central.h5
"""


# in the order of the help; the frame only matters where positions are rotations
_FRAME = {"rotation_frame": options.RotationFrame}


@options.command(options.SMOOTHING, _FRAME, options.READING, options.REPAIR, options.RUN)
def differentiate(console: Console, method: options.Differences = None, **typed: Any) -> int:
    """Differentiate recorded positions into trajectories.

    SOURCE holds positions [B, T, D] (or [T, D]) and their times. OUT gets position, velocity,
    acceleration and jerk; rotations become orientation (unit quaternions w, x, y, z) and
    angular_velocity, …. savgol and smooth also smooth the positions; smooth adds the cutoff of each
    dof (bandlimit) and the standard deviation of the residuals (residual).
    """
    from trajcli.jobs.request import DifferentiateRequest

    mode_options = options.pop_mode_options(typed, options.SMOOTHING)
    return run_request(console, DifferentiateRequest, typed, mode=method, options=mode_options)
