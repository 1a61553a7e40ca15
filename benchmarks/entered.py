"""How much of the house one command walks through: files entered, calls from file to file.

    python benchmarks/entered.py [COMMAND ARGUMENTS]

Without arguments: ``integrate sample_data/reach.h5``. Counts Python functions of trajcli; a module
that is only imported is not entered. Fails where a name of a file is looked up a second time.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

FILES, CALLS = 36, 300
"""At most so many in a small run."""
ROOT = Path(__file__).resolve().parent.parent
PACKAGE = str(ROOT / "trajcli")


def main(arguments: list[str]) -> None:
    """Trace the command and print the counts."""
    sys.path.insert(0, str(ROOT))
    from trajcli.cli import main as run

    entered: Counter[str] = Counter()
    crossings: Counter[tuple[str, str]] = Counter()
    lookups: Counter[tuple[str, str]] = Counter()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        if code.co_name == "<module>" or "__qualname__" in code.co_names:  # imports, class bodies
            return
        entered[code.co_filename] += 1
        if code.co_name == "find":  # of a catalogue
            lookups[str(frame.f_locals["self"].path), frame.f_locals["name"]] += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != code.co_filename:
            crossings[caller.f_code.co_filename, code.co_filename] += 1

    with tempfile.TemporaryDirectory() as folder:
        default = ["integrate", str(ROOT / "sample_data/reach.h5"), "--mode", "jerk"]
        command = arguments or [*default, "--scheme", "zoh", "-o", f"{folder}/out.h5"]
        sys.setprofile(profile)
        code = run(command)
        sys.setprofile(None)
    for name, count in sorted(entered.items()):
        print(f"{count:6d} calls  {Path(name).relative_to(PACKAGE)}")
    print("most calls from file to file:")
    for (caller, callee), count in crossings.most_common(12):
        names = (str(Path(name).relative_to(PACKAGE)) for name in (caller, callee))
        print(f"{count:6d}  {' -> '.join(names)}")
    total = sum(crossings.values())
    print(
        f"exit code {code}: {len(entered)} files entered (target {FILES}), {total} calls across "
        f"files (target {CALLS})"
    )
    again = [f"{path}:{name}" for (path, name), count in lookups.items() if count > 1]
    print(f"{len(lookups)} names of files looked up, {len(again)} of them again")
    if again:
        sys.exit(", ".join(again))


if __name__ == "__main__":
    main(sys.argv[1:])
