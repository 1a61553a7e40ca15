"""Runs in shares of small units."""

from __future__ import annotations

from journeys.conftest import _no_variables, folder, trajcli  # noqa: F401
