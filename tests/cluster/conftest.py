"""The command as a function, for tests of shards."""

from journeys.conftest import _no_variables, trajcli  # noqa: F401
