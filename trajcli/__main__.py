"""``python -m trajcli`` is the command ``trajcli``."""

from trajcli.cli import run

run()
