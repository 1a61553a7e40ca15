"""MuJoCo's slide joints of unit mass under semi-implicit Euler."""

from __future__ import annotations

import numpy as np
import pytest

import trajcli
from trajcli import State

mujoco = pytest.importorskip("mujoco")

DOFS = 3
JOINT = """
    <body>
      <joint name="slide{0}" type="slide" axis="1 0 0" damping="0" armature="0"/>
      <inertial mass="1" pos="0 0 0" diaginertia="1 1 1"/>
    </body>"""
MODEL = """
<mujoco>
  <option timestep="{dt}" gravity="0 0 0" integrator="Euler">
    <flag contact="disable" constraint="disable"/>
  </option>
  <worldbody>{joints}
  </worldbody>
</mujoco>"""


@pytest.mark.parametrize("dt", [0.002, 0.01])
def test_acceleration_by_euler_is_what_mujoco_simulates(dt: float) -> None:
    joints = "".join(JOINT.format(dof) for dof in range(DOFS))
    model = mujoco.MjModel.from_xml_string(MODEL.format(dt=dt, joints=joints))
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    actions, start = rng.normal(size=(500, DOFS)), State(*rng.normal(size=(2, DOFS)))
    data.qpos[:], data.qvel[:] = start.position, start.velocity
    positions, velocities = [data.qpos.copy()], [data.qvel.copy()]
    for forces in actions:
        data.qfrc_applied[:] = forces
        mujoco.mj_step(model, data)
        positions.append(data.qpos.copy())
        velocities.append(data.qvel.copy())

    trajectory = trajcli.integrate(actions, start, dt, "acceleration", scheme="euler")
    for values, simulated in ((trajectory.position, positions), (trajectory.velocity, velocities)):
        assert np.abs(values[0] - simulated).max() <= 1e-12 * max(1.0, np.abs(simulated).max())
    assert data.time == pytest.approx(trajectory.time[-1], rel=1e-12)
