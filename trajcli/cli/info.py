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
    facts = _facts()
    for name, version in facts["versions"].items():
        console.say(f"{name:<10} {version or 'not installed'}")
    for device in facts["devices"]:
        console.say(f"{'device':<10} {device['name']}: {device['what']}")
    if facts["cuda_absent"]:
        console.say(f"{'device':<10} cuda: absent: {facts['cuda_absent']}")
    for backend in facts["backends"]:
        state = "present" if backend["present"] else f"absent: {backend['why']}"
        state += f", {backend['runs_on']}" if "runs_on" in backend else ""
        console.say(f"{'backend':<10} {backend['name']}: {state}")
    console.document(facts)


def _facts() -> dict[str, Any]:
    """Returns the versions, devices and backends of this machine."""
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from trajcli import __version__
    from trajcli.kernels import cuda, native
    from trajcli.kernels.choose import BACKENDS, backend_absence, device_backend

    versions: dict[str, str | None] = {
        "trajcli": __version__,
        "python": platform.python_version(),
    }
    for package in ("torch", "triton", "numpy", "h5py", "typer", "rich", "matplotlib", "rerun-sdk"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    # torch is imported only where there is a GPU to describe
    devices = [{"name": "cpu", "what": f"{os.cpu_count()} cores, {platform.machine()}"}]
    count = cuda.count()
    if count:
        import torch

        for index in range(count):
            name, card = f"cuda:{index}", torch.cuda.get_device_properties(index)
            backend, why = device_backend(name)
            memory = f"{card.total_memory / 1e9:.0f} GB"
            what = f"{card.name}, {memory}; {backend} is preferred, {why}"
            devices.append({"name": name, "what": what})
    reasons = {name: backend_absence(name) for name in BACKENDS}
    backends = [{"name": name, "present": not why, "why": why} for name, why in reasons.items()]
    if not native.absence():
        backends[0]["runs_on"] = f"{native.instruction_set()}, {native.threads()} threads"
    facts = {"versions": versions, "devices": devices, "backends": backends}
    return {**facts, "cuda_absent": "" if count else cuda.absence()}
