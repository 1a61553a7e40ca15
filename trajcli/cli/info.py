"""trajcli info: shows what is installed here."""

from __future__ import annotations

from typing import Any

from trajcli.cli import options
from trajcli.cli.console import Console

EXAMPLE = """
Example:

    trajcli info --json
"""


@options.command()
def info(console: Console) -> None:
    """Show versions, devices and backends, and why some are absent."""
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from trajcli import __version__
    from trajcli.kernels import cuda, native
    from trajcli.kernels.choose import BACKENDS, backend_absence, device_backend

    versions: dict[str, str | None] = {"trajcli": __version__, "python": platform.python_version()}
    for package in ("torch", "triton", "numpy", "h5py", "typer", "rich", "matplotlib", "rerun-sdk"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    devices = [{"name": "cpu", "what": f"{os.cpu_count()} cores, {platform.machine()}"}]
    # torch is imported only where there is a GPU to describe
    count = cuda.count()
    if count:
        import torch

        for index in range(count):
            name, card = f"cuda:{index}", torch.cuda.get_device_properties(index)
            preferred, why = device_backend(name)
            memory = f"{card.total_memory / 1e9:.0f} GB"
            what = f"{card.name}, {memory}; {preferred} is preferred, {why}"
            devices.append({"name": name, "what": what})
    absence = "" if count else cuda.absence()
    reasons = {name: backend_absence(name) for name in BACKENDS}
    backends: list[dict[str, Any]] = [
        {"name": name, "present": not why, "why": why} for name, why in reasons.items()
    ]
    if not native.absence():
        backends[0]["runs_on"] = f"{native.LEVELS[native.level()]}, {native.threads()} threads"
    for package, number in versions.items():
        console.say(f"{package:<10} {number or 'not installed'}")
    for device in devices:
        console.say(f"{'device':<10} {device['name']}: {device['what']}")
    if absence:
        console.say(f"{'device':<10} cuda: absent: {absence}")
    for backend in backends:
        state = "present" if backend["present"] else f"absent: {backend['why']}"
        state += f", {backend['runs_on']}" if "runs_on" in backend else ""
        console.say(f"{'backend':<10} {backend['name']}: {state}")
    facts = {"versions": versions, "devices": devices, "backends": backends}
    console.write_document({**facts, "cuda_absent": absence})
