"""The command as a function and a folder to work in, as in the journeys."""

from journeys.conftest import _no_variables, folder, trajcli  # noqa: F401
