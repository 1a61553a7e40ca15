"""Following a hint works: every hint of the package is provoked, and what it says is done."""

from __future__ import annotations

import ast
import os
import re
import shlex
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from journeys.arrays import close
from journeys.conftest import ROOT
from journeys.hint_cases import CASES, CURVE, TYPED, UNTRIED
from words import require_words_of_python, require_words_of_the_shell

import trajcli.errors
from trajcli.cli import main
from trajcli.errors import Fault, TrajcliError

OTHERS = r"(?:aws|gcloud|hf|curl|cp|mkdir|rm|gunzip|mcap|rosbag|python|in|convert) "
"""Commands of others, whose options are not looked up."""


def texts(node: ast.AST) -> Iterator[str]:
    """The texts within an expression, with … for what they are filled with."""
    if isinstance(node, ast.JoinedStr):
        parts = (p.value if isinstance(p, ast.Constant) else "…" for p in node.values)
        yield "".join(map(str, parts))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value.replace("%s", "…")
    elif isinstance(node, ast.IfExp):
        yield from (*texts(node.body), *texts(node.orelse))
    elif not isinstance(node, ast.Compare):
        for child in ast.iter_child_nodes(node):
            yield from texts(child)


def values_of(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions within a node that become hints, wherever they are assigned."""
    if isinstance(node, ast.keyword) and node.arg in ("hint", "shell"):
        yield node.value
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "refuse_larger":
        yield from node.args[2:]
    elif isinstance(node, ast.AugAssign) and re.search("hint|shell", ast.unparse(node.target)):
        yield node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            names = ((t.id.lower(), v) for t, v in pairs if isinstance(t, ast.Name))
            yield from (v for name, v in names if "hint" in name or name == "shell")


def hints() -> Iterator[tuple[str, str]]:
    """All hints of the package, and where they stand."""
    for path in sorted((ROOT / "trajcli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for value in values_of(node):
                place = f"{path.relative_to(ROOT)}:{value.lineno}"
                yield from ((place, text) for text in texts(value) if text)


@cache
def commands() -> dict[str, set[str]]:
    from trajcli.cli import command_line

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
            assert hasattr(trajcli, name), (where, text)


def require_options(words: str, said: str) -> None:
    """Every option in a line of a message is one of the command, or of one that the line names."""
    known, command = commands(), re.sub(r"^\d+ ", "", words).split()[0]
    for line in filter(lambda text: "o such option" not in text, said.splitlines()):
        named = {command, *(set(re.findall("[a-z]+", line)) & known.keys())}
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", line):
            mine = option == "--help" or any(option in known[name] for name in named)
            assert mine or re.match(OTHERS, line.partition("try:")[2].strip()), (command, line)


class Hints:
    """Records the hints of all faults that are made, in the words of whom they are for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: list[Fault] = []
        original = trajcli.errors.Fault.__init__

        def init(fault: Any, *args: Any, **rest: Any) -> None:
            original(fault, *args, **rest)
            self.found.append(fault)

        monkeypatch.setattr(trajcli.errors.Fault, "__init__", init)

    def of(self, refused: str | Callable[[], Any]) -> list[str]:
        """Runs what is refused, and returns the hints that it gave."""
        self.found.clear()
        if isinstance(refused, str):
            words = shlex.split(refused)
            code, *words = words if refused[0].isdecimal() else ("2", *words)
            assert main(words) == int(code), refused
        else:
            try:
                refused()
            except TrajcliError as error:
                require_words_of_python(error)
        shell = isinstance(refused, str)
        faults = [fault.in_shell() if shell else fault for fault in tuple(self.found)]
        return [hint for fault in faults for hint in (fault.hint, fault.shell) if hint]


def make(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / re.sub(r"\W", "_", name)
    folder.mkdir()
    monkeypatch.chdir(folder)
    CASES[name][0]()


def follow(step: str | Callable[[], Any]) -> None:
    """Runs a command line, which must succeed and write what is finite, or calls a function."""
    if not isinstance(step, str):
        step()
        return
    words = shlex.split(step)
    code, *words = words if step[0].isdecimal() else ("0", *words)
    assert run(words) == int(code), step


def run(words: list[str]) -> int:
    """Runs a command line and looks at what it writes; returns its exit code."""
    out = words[words.index("-o") + 1] if "-o" in words else ""
    if Path(out).is_file() and "--overwrite" not in words:
        os.remove(out)  # of another way that the hint names
    code = main(words)
    if code == 2 or "--shard" in words or not out.endswith(".h5"):
        return code
    with h5py.File(out) as file:

        def visit(path: str, dataset: Any) -> None:
            if not isinstance(dataset, h5py.Dataset) or dataset.dtype.kind != "f":
                return
            values = dataset[()]
            assert np.isfinite(values).all() or "--allow-nonfinite" in words, (words, path)
            if words[0] == "differentiate" and path in ("position", "episode_0/position"):
                values = values.reshape(-1, *values.shape[-2:])[0]
                if values.shape == (30, 3):
                    close(values, CURVE, rtol=0, atol=0.05)

        file.visititems(visit)
    return code


def ways(line: str, hint: str) -> list[list[str]]:
    """What a hint says, typed: lists of command lines, each of which must do."""
    source, out = (shlex.quote(shlex.split(line)[k]) for k in (1, -1))
    read = lambda other: line.replace(source, other, 1)  # noqa: E731
    if python := re.match(r"(?:if you trust it: )?(python -c .*)", hint, re.DOTALL):
        made = re.findall(r'"([^"]+\.(?:npz|csv|parquet))"', python[1])[-1]
        return [[python[1], read(shlex.quote(made))]]
    if made := re.match(r"-o (.+?), and then: (.*)", hint, re.DOTALL):
        return [[line.removesuffix(out) + made[1], made[2].removeprefix("trajcli ")]]
    if chain := re.match(r"trajcli (differentiate .* -o (\S+)), then retime \2", hint):
        return [[chain[1], read(chain[2])]]
    if start := "if it is meant" in hint and re.search(r"(?<=--start )\S+", line):
        return [[line.replace(start[0], hint.partition(",")[0])]]
    if "--times" in hint.partition(";")[0] and "if these are times" in hint:
        return [[f"{line} {one}"] for one in hint.split(", if")[0].split(" or ")]
    if hint.startswith("--dt SECONDS"):
        return [[f"{line} --dt 0.1"]]
    if look := re.match(r"trajcli (inspect .*) lists what it holds", hint):
        return [[look[1]]]
    meant = re.split(" names them|, if it is meant", hint.partition(": ")[2] or hint)[0]
    meant = re.sub(r" for all \d+$|^name one as ", "", meant)
    return [[read(one)] for one in re.split(", or | or ", meant)]


def type_hint(line: str, said: str, capfd: Any, depth: int = 0) -> None:
    """Types what a hint says, and what the hints of the errors after it say."""
    hint = re.search("try: +(.*)", said, re.DOTALL)
    assert hint is not None, said
    assert depth < 4, said
    for words in (shlex.split(one) for lines in ways(line, hint[1].strip()) for one in lines):
        if words[0] == "python":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of other libraries
                exec(compile(words[2], "hint", "exec"), {})
        elif run(words):
            type_hint(shlex.join(words), capfd.readouterr().err, capfd, depth + 1)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of NumPy's, in hints
@pytest.mark.parametrize("name", CASES)
def test_a_hint_that_is_followed_works(name, tmp_path, monkeypatch, capfd):
    _, refused, followed = CASES[name]
    make(name, tmp_path, monkeypatch)
    with monkeypatch.context() as patched:
        given = Hints(patched).of(refused)
    assert given, name
    if isinstance(refused, str):
        text = capfd.readouterr().err
        require_options(refused, text)
        require_words_of_the_shell(text)
        said = re.sub(r"\s", "", text)
        if TYPED in followed:
            type_hint(shlex.join(shlex.split(refused)), text, capfd)
            return
        given = [hint for hint in given if re.sub(r"\s", "", hint) in said]
        assert given, said
    # every option and command that the hint names is among what is done
    done = " ".join(step for step in followed if isinstance(step, str))
    for hint in given if isinstance(refused, str) else ():
        if not re.match(OTHERS, hint):
            for word in re.findall(r"(?:(?<![\w-])--|trajcli )[a-z][a-z-]+", hint):
                assert word.removeprefix("trajcli ") in done, (word, hint)
    for step in followed:
        follow(step)
        if isinstance(step, str):
            require_options(step, capfd.readouterr().err)


OTHER_COMMANDS = ("integrate {} -o q.h5 --start zero", "differentiate {} -o q.h5", "inspect {}",
                  "check {}", "score {}", "diff {} {}", "plot {} -o q.png", "export {} -o q.csv",
                  "resample {} --to 30 -o q.h5", "fit {} --knots 8 -o q.h5",
                  "retime {} --limits q.toml -o q.h5")  # fmt: skip
EVERY = os.environ.get("TRAJCLI_HINTS") == "all"


def test_messages_name_options_that_their_command_has(tmp_path, monkeypatch, capfd):
    """Every third faulty input by one command; with TRAJCLI_HINTS=all every one by all of them."""
    known, count = commands(), len(OTHER_COMMANDS)
    lines = [(name, refused.split()) for name, (_, refused, _) in CASES.items()
             if isinstance(refused, str) and "." in refused.partition(" ")[2]]  # fmt: skip
    for k, (name, (_, source, *words)) in enumerate(lines if EVERY else lines[::3]):
        make(name, tmp_path, monkeypatch)
        Path("q.toml").write_text("[velocity]\nupper = 9.0\n")
        for line in OTHER_COMMANDS if EVERY else OTHER_COMMANDS[k % count :][:1]:
            command, *rest = line.format(source, source).split()
            pairs = pairwise([*words, "--"])
            more = [
                w
                for word, value in pairs
                if word in known[command] - {"-o", "--start"}
                for w in [word, value][: 2 - value.startswith("-")]
            ]
            capfd.readouterr()
            main([command, *rest, *more])
            require_options(command, "\n".join(capfd.readouterr()))


def test_every_hint_is_among_them_or_has_a_reason(tmp_path, monkeypatch, capfd):
    given: set[str] = set()
    for name, (_, refused, _) in CASES.items():
        make(name, tmp_path, monkeypatch)
        with monkeypatch.context() as patched:
            given |= set(Hints(patched).of(refused))
    untried = []
    for where, hint in hints():
        pattern = ".*".join(map(re.escape, hint.split("…")))
        tried = any(re.search(pattern, one, re.DOTALL) for one in given)
        if tried == (hint in UNTRIED):
            untried.append(f"{where}: {hint}")
    assert not untried, "\n" + "\n".join(untried)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("typed: odometry and joints", ["bag:/odom/pose", "bag:/joints", "bag:/imu/orientation"]),
        ("typed: odometry beside what turns", ["bag:odom/pose names them"]),
        ("velocities alone", ["integrate in.npz:velocity --mode velocity --start zero"]),
    ],
)
def test_a_hint_names_all_positions_that_may_be_meant(name, said, tmp_path, monkeypatch, capfd):
    make(name, tmp_path, monkeypatch)
    assert main(shlex.split(CASES[name][1])) == 2
    hint = " ".join(capfd.readouterr().err.split("try: ")[1].split())
    assert all(one in hint for one in said)
