"""Following a hint works: what it names exists, and the usual ones are followed as they stand."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
OTHERS = r"(?:aws|gcloud|hf|curl|cp|mkdir|rm|gunzip|mcap|rosbag|python) "
"""Commands of others, whose options are not looked up."""


def texts(node: ast.AST) -> Iterator[str]:
    """The texts within an expression, with … for what they are filled with."""
    if isinstance(node, ast.JoinedStr):
        parts = (p.value if isinstance(p, ast.Constant) else "…" for p in node.values)
        yield "".join(map(str, parts))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def hints() -> Iterator[tuple[str, str]]:
    """All hints of the package, and where they stand."""
    for path in sorted((ROOT / "trajcli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            values: list[ast.AST] = []
            if isinstance(node, ast.keyword) and node.arg in ("hint", "dt_hint"):
                values = [node.value]
            elif isinstance(node, ast.Assign):
                names = [n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)]
                values = [node.value] * any("hint" in name for name in names)
            for value in values:
                yield from (
                    (f"{path.relative_to(ROOT)}:{node.lineno}", text) for text in texts(value)
                )


def commands() -> dict[str, set[str]]:
    from trajcli.cli.app import command_line

    made = command_line().commands
    return {name: {word for one in of.params for word in one.opts} for name, of in made.items()}


def test_what_hints_name_exists():
    known, found = commands(), list(hints())
    options = {"--help", *(option for of in known.values() for option in of)}
    modules = "scipy|pyyaml|tomli|torch|zarr|rosbags|pyarrow|matplotlib|rerun-sdk"
    assert len(found) > 100
    for where, text in found:
        if not re.match(OTHERS, text):
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text):
                assert option in options, (where, text)
        for name in re.findall(r"trajcli ([a-z]+)", text):
            assert name in known or name in ("info", "inspect"), (where, text)
        for name in re.findall(r"pip install '?([\w\[\]-]+)", text):
            assert re.fullmatch(modules, name), (where, text)
        for name in re.findall(r"trajcli\.(\w+)\(", text):
            import trajcli

            assert hasattr(trajcli, name), (where, text)


def table(text: str) -> None:
    Path("log.csv").write_text(text)


ROWS = "".join(f"{k / 10},{k},{k * k},{k % 3},{2 * k}\n" for k in range(30))
CURVE = np.sin(np.arange(30)[:, None] / 5 + np.arange(3))
"""name: what is made, the command that is refused, what its hint says, the command as it says."""
FOLLOWED = {
    "name one as": (
        lambda: table("t,a1,a2,b1,b2\n" + ROWS),
        "differentiate log.csv -o out.h5", "name one as log.csv:a",
        "differentiate log.csv:a -o out.h5",
    ),
    "the other columns": (
        lambda: table("t,a,b,c,d\n" + ROWS.replace("29,841", "29,??")),
        "differentiate log.csv -o out.h5", "log.csv:a,c,d reads the other columns",
        "differentiate log.csv:a,c,d -o out.h5",
    ),
    "no time step": (
        lambda: np.save("in.npy", CURVE),
        "differentiate in.npy -o out.h5", "--rate HZ", "differentiate in.npy --rate 50 -o out.h5",
    ),
    "likely times": (
        lambda: np.savez("in.npz", position=CURVE, timestmaps=np.arange(30) / 5),
        "differentiate in.npz:position -o out.h5", "--times in.npz:timestmaps",
        "differentiate in.npz:position --times in.npz:timestmaps -o out.h5",
    ),
    "NaN": (
        lambda: np.save("in.npy", np.where(CURVE > 0.999, np.nan, CURVE)),
        "differentiate in.npy --rate 50 -o out.h5", "--allow-nonfinite",
        "differentiate in.npy --rate 50 --allow-nonfinite -o out.h5",
    ),
    "near names": (
        lambda: np.savez("in.npz", positions=CURVE, dt=0.1),
        "differentiate in.npz:position -o out.h5", "name one as FILE:DATASET",
        "differentiate in.npz:positions -o out.h5",
    ),
    "a start": (
        lambda: np.save("in.npy", CURVE),
        "integrate in.npy --dt 0.1 -o out.h5", "--start zero",
        "integrate in.npy --dt 0.1 --start zero -o out.h5",
    ),
    "recorded positions": (
        lambda: np.save("in.npy", CURVE),
        "integrate in.npy --dt 0.1 -o out.h5", "trajcli differentiate",
        "differentiate in.npy --dt 0.1 -o out.h5",
    ),
    "an output that is there": (
        lambda: (np.save("in.npy", CURVE), Path("out.h5").write_text("mine")),
        "differentiate in.npy --dt 0.1 -o out.h5", "--overwrite",
        "differentiate in.npy --dt 0.1 -o out.h5 --overwrite",
    ),
    "a folder for it": (
        lambda: np.save("in.npy", CURVE),
        "differentiate in.npy --dt 0.1 -o made/out.h5", "mkdir -p made",
        "differentiate in.npy --dt 0.1 -o made/out.h5",
    ),
    "one quantity": (
        lambda: np.save("in.npy", CURVE),
        "differentiate in.npy --dt 0.1 -o out.npy", "--write position",
        "differentiate in.npy --dt 0.1 -o out.npy --write position",
    ),
    "a near file": (
        lambda: np.save("in.npy", CURVE),
        "differentiate im.npy --dt 0.1 -o out.h5", "did you mean in.npy",
        "differentiate in.npy --dt 0.1 -o out.h5",
    ),
    "names of dofs": (
        lambda: (
            np.savez("in.npz", position=CURVE, dt=0.1, joint_names=np.array(list("xyz"))),
            Path("limits.toml").write_text('joint_names = ["a", "b", "c"]\n[position]\nupper = 9'),
        ),
        "check in.npz --limits limits.toml", "--joints a,b,c",
        "check in.npz --limits limits.toml --joints a,b,c",
    ),
    "units": (
        lambda: table("t,a [furlong],b [furlong]\n" + "".join(f"{k},{k},1\n" for k in range(30))),
        "differentiate log.csv -o out.h5 --units furlong", "expected",
        "differentiate log.csv -o out.h5 --units deg",
    ),
    "a workbook": (
        lambda: (table("t,a,b,c,d\n" + ROWS), _workbook()),
        "differentiate log.xlsx -o out.h5", "pandas.read_excel",
        "differentiate log.csv:a,b -o out.h5",
    ),
}  # fmt: skip


def _workbook() -> None:
    Path("log.xlsx").write_bytes(b"PK\3\4" + bytes(100))


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_hint_that_is_followed_works(trajcli, folder, name):
    make, refused, hint, followed = FOLLOWED[name]
    make()
    result = trajcli(refused)
    assert result.code == 2, result.err
    assert hint in " ".join(result.err.split())
    if hint.startswith("mkdir"):
        Path(hint.split()[-1]).mkdir()
    result = trajcli(followed)
    assert result.code == 0, result.err


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("in.yaml", "yaml"), ("in.mat", "scipy"), ("in.parquet", "pyarrow"), ("in.bag", "rosbags"),
        ("in.zarr.zip", "zarr"),
    ],
)  # fmt: skip
def test_a_library_that_is_missing_is_named_by_what_installs_it(
    trajcli, folder, monkeypatch, name, module
):
    heads = {"in.mat": b"MATLAB 5.0", "in.parquet": b"PAR1", "in.bag": b"#ROSBAG V2.0\n"}
    Path(name).write_bytes(heads.get(name, b"PK\3\4" if "zip" in name else b"a: 1\n"))
    for loaded in [one for one in sys.modules if one.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    result = trajcli(f"inspect {name}")
    assert result.code == 2
    package = {"yaml": "pyyaml"}.get(module, module)
    assert f"pip install {package}" in result.err
