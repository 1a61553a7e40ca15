"""trajcli differentiate: turns recorded positions into trajectories."""

from typing import Any

from trajcli.cli import options
from trajcli.cli.integrate import run_request

EXAMPLE = """
Examples, on files in sample_data:

    trajcli differentiate sample_data/recorded.h5 -o out.h5

    trajcli differentiate sample_data/recorded.h5:position --window 0.3s -o savgol.h5

    trajcli differentiate sample_data/recorded.h5:position --method central -o central.h5
"""


@options.computing_recordings
def differentiate(
    source: options.Sources,
    out: options.Out,
    method: options.Differences = None,
    window: options.Window = None,
    degree: options.FitDegree = None,
    bandlimit: options.Bandlimit = None,
    noise: options.Noise = None,
    robust: options.Robust = False,
    order: options.Order = None,
    rotation_frame: options.RotationFrame = "world",
    **typed: Any,
) -> int:
    """Differentiate recorded positions into trajectories.

    SOURCE holds positions [B, T, D] (or [T, D]) with their times. OUT gets position, velocity,
    acceleration and jerk [B, T, D]; with savgol and smooth the position is smoothed as well, and
    smooth adds the cutoff of each dof that it chose (bandlimit) and the deviation of its residuals
    (residual). Of rotations OUT gets orientation (unit quaternions w, x, y, z), angular_velocity,
    angular_acceleration and angular_jerk.
    """
    from trajcli.jobs.request import DifferentiateRequest

    return run_request(
        DifferentiateRequest,
        typed,
        sources=source,
        out=out,
        mode=method,
        rotation_frame=rotation_frame,
        options=options.of_mode(
            window=window,
            degree=degree,
            bandlimit=bandlimit,
            noise=noise,
            robust=robust or None,
            order=order,
        ),
    )
