"""Modules import each other in one direction, and rooms only those below them."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import get_args

from trajcli.kernels.program import Program
from trajcli.modes import Mode

ROOT = Path(__file__).parent.parent
ROOMS = {"modes": 0, "kernels": 0, "curves": 1, "rotations": 2,
         "files": 3, "jobs": 4, "views": 5, "cli": 6}  # fmt: skip
"""Height of each room."""
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "trajcli").rglob("*.py")
}


@cache
def walk(path: Path) -> tuple[ast.AST, ...]:
    """Returns all nodes of a module, parsed once for all tests."""
    return tuple(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> set[str]:
    """Returns the modules that one imports, within functions and for types included."""
    found = set()
    for node in walk(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else node.module for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys()


def packages(module: str) -> set[str]:
    """Returns a module and the rooms that it is in."""
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(min(2, len(parts)), len(parts) + 1)}


def test_no_modules_import_each_other_in_a_circle():
    # an import of a module imports its packages first
    graph = {
        name: {part for other in imports(path) for part in packages(other)} - packages(name)
        for name, path in MODULES.items()
    }
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


def own_room(module: str) -> str:
    room = f"{module}.".split(".")[1]
    return room if room in ROOMS else "trajcli"


def users() -> dict[str, set[str]]:
    """Returns the rooms that import each module; "trajcli" for modules in none."""
    found: dict[str, set[str]] = {name: set() for name in MODULES}
    for name, path in MODULES.items():
        for other in imports(path):
            found[other].add(own_room(name))
    return found


def is_private(module: str) -> bool:
    return module.rpartition(".")[2].startswith("_") and not module.endswith("__")


def test_only_its_own_room_imports_a_private_module():
    private = {
        name: rooms - {own_room(name)} for name, rooms in users().items() if is_private(name)
    }
    assert len(private) > 10
    assert {name: rooms for name, rooms in private.items() if rooms} == {}


def test_a_module_that_only_its_own_room_imports_is_private():
    own = [
        name
        for name, rooms in users().items()
        if rooms <= {own_room(name)} and MODULES[name].name != "__init__.py"
    ]
    public = [name for name in own if not is_private(name)]
    assert [name for name in public if own_room(name) not in ("trajcli", "cli")] == []


def test_modules_of_one_name_are_one_thing_seen_twice():
    pairs = ({"cli", "jobs"}, {"cli", "views"}, {"modes", "kernels"}, {"curves", "kernels"},
             {"kernels"})  # fmt: skip
    places: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        if path.name != "__init__.py" and name != "trajcli.__main__":
            places.setdefault(name.rpartition(".")[2].lstrip("_"), []).append(name)
    same = [names for names in places.values() if names[1:]]
    assert [names for names in same if {own_room(name) for name in names} not in pairs] == []


def kinds(base: type) -> Iterator[type]:
    """Yields a class and all that are derived from it."""
    yield base
    for kind in base.__subclasses__():
        yield from kinds(kind)


def types_asked_for(nodes: Iterable[ast.AST], names: set[str]) -> list[int]:
    """Returns the lines that ask whether a value is of a class with one of these names."""
    found = []
    for node in nodes:
        if isinstance(node, ast.MatchClass):
            asked: list[ast.expr] = [node.cls]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            asked = node.args[1:]
        elif isinstance(node, ast.Compare) and "type(" in ast.unparse(node):
            asked = [node.left, *node.comparators]
        else:
            continue
        words = {ast.unparse(part).rpartition(".")[2] for x in asked for part in ast.walk(x)
                 if isinstance(part, ast.Name | ast.Attribute)}  # fmt: skip
        found += [node.lineno] * len(words & names)
    return found


def test_modes_and_programs_answer_for_themselves():
    names = {kind.__name__ for kind in kinds(Mode)} | {x.__name__ for x in get_args(Program)}
    assert {"Smooth", "SavitzkyGolay", "Clique", "Cascade", "Band"} <= names
    forms = "isinstance(x, (a.Smooth, Band)); isinstance(x, int | Clique); type(x) is Mode"
    assert types_asked_for(ast.walk(ast.parse(forms)), names) == [1] * 4
    outside = [
        f"{name}:{line}"
        for name, path in MODULES.items()
        if own_room(name) not in ("modes", "kernels")
        for line in types_asked_for(walk(path), names)
    ]
    assert len(outside) <= 5, outside
