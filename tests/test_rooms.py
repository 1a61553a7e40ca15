"""Modules import each other in one direction, and rooms only those below them."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = {"modes": 0, "kernels": 0, "files": 1, "jobs": 2, "views": 3, "cli": 4}
"""Height of each room."""
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "trajcli").rglob("*.py")
}


def imports(path: Path) -> set[str]:
    """Returns the modules that one imports, within functions and for types included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys()


def test_no_modules_import_each_other_in_a_circle():
    graph = {name: imports(path) - {name} for name, path in MODULES.items()}
    assert len(graph) > 100
    TopologicalSorter(graph).prepare()  # raises CycleError, with the circle


def test_rooms_import_only_rooms_before_them():
    def room(module: str) -> int:
        return ROOMS.get(f"{module}.".split(".")[1], -1)

    upward = [
        (name, other)
        for name, path in MODULES.items()
        for other in imports(path)
        if room(name) >= 0 and room(other) > room(name)
    ]
    assert upward == []
