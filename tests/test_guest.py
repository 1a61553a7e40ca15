"""The library is a guest in its caller's process: it leaves everything there as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import trajcli
from trajcli import matrices


def test_no_public_call_changes_the_process_of_its_caller() -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "guest"]
    process = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    changes = json.loads(process.stdout)
    assert {*changes.pop("a change")} == {"environment", "environment of C", "descriptors"}
    assert not {name: what for name, what in changes.items() if what}
    public = {name for name in [*trajcli.__all__, *matrices.__all__] if name.islower()}
    assert public <= changes.keys()
