"""Following a hint works: a command is refused, and what the hint says is typed."""

from __future__ import annotations

import re
import shlex
import sys
import warnings
from functools import cache
from pathlib import Path

import pytest
from journeys import hint_cases
from journeys.hint_cases import CASES, TYPED, Step
from words import require_words_of_python, require_words_of_the_shell

import trajcli
from trajcli.cli import main
from trajcli.errors import TrajcliError

OTHERS = r"(?:aws|gcloud|hf|curl|cp|mkdir|rm|gunzip|mcap|rosbag|python|in|convert) "
"""Commands of others, whose options are not looked up."""
CALLS = ("State", "differentiate", "integrate", "retime", "sample", "score")
PYTHON = vars(hint_cases) | {"trajcli": trajcli} | {name: getattr(trajcli, name) for name in CALLS}
VALUE = r"(?<![^\s'(])[a-z0-9_]\w*[.:=/\[][^\s,;?'\")A-Z]*[a-z0-9_\]]"
"""A file, a dataset or a range within a hint."""
COMMAND = r"(?<=trajcli )[a-z]+(?: [\w-]+[.:][\w.:/]*(?: --?[a-z-]+ [\w.:/]+)*)?"
OPTION = r"(?<![\w-])--[a-z][a-z-]+"


@cache
def known_options() -> dict[str, set[str]]:
    from trajcli.cli import command_line

    return {
        name: {word for option in command.params for word in option.opts} | {"--help"}
        for name, command in command_line().commands.items()
    }


def complete(step: str, refused: str) -> str:
    """The whole line of a row's short form "+ MORE" or "@ SOURCE MORE"."""
    command, _, rest = f"{refused}  ".split(" ", 2)
    code, sign, more = re.fullmatch(r"(\d+ )?([+@]?) ?(.*)", step, re.DOTALL).groups("")
    return code + {"+": f"{refused} {more}", "@": f"{command} {more} {rest}", "": more}[sign]


def follow(step: Step, refused: str = "", hint: str = "") -> None:
    """Takes a step of a row, whose command line must end with the code that it states."""
    if callable(step):
        step()
    elif isinstance(step, list):
        for one in step:
            follow(one)
    elif step.startswith(">>> "):
        eval(step[4:], PYTHON)
    elif step == TYPED:
        code = re.search("python -c .*", hint, re.DOTALL)
        assert code, hint
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of other libraries
            exec(compile(shlex.split(code[0])[2], "hint", "exec"), {})
    else:
        words = shlex.split(complete(step, refused))
        code = int(words.pop(0)) if words[0].isdecimal() else 0
        if "-o" in words and "-" not in words and "--overwrite" not in words:
            out = Path(words[-words[::-1].index("-o")])
            out.unlink(missing_ok=True)  # of another way that the hint names
        assert main(words) == code, words


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of NumPy's, in hints
@pytest.mark.parametrize("name", CASES)
def test_a_hint_that_is_followed_works(name, tmp_path, monkeypatch, capfd):
    files, refused, *steps = CASES[name]
    monkeypatch.chdir(tmp_path)
    follow(files)
    followed = "\n".join(complete(step, refused) for step in steps if isinstance(step, str))
    if refused.startswith(">>> "):
        with pytest.raises(TrajcliError) as caught:
            eval(refused[4:], PYTHON)
        require_words_of_python(caught.value)
        hint = "\n".join(fault.hint for fault in caught.value.faults)
        assert hint, caught.value
        named = re.findall(r"\b[a-z_]+=|trajcli\.\w+\(", hint)
    else:
        if missing := re.match(r"without (\w+): ", refused):
            # with its submodules, which another test may have loaded
            loaded = [name for name in sys.modules if name.startswith(f"{missing[1]}.")]
            for module in (missing[1], *loaded):
                monkeypatch.setitem(sys.modules, module, None)
            refused = refused.removeprefix(missing[0])
        capfd.readouterr()
        assert main(shlex.split(refused)) == 2
        printed = capfd.readouterr().err
        # every option in a line is one of the command, or of one that the line names
        command, known = refused.split()[0], known_options()
        for line in filter(lambda text: "o such option" not in text, printed.splitlines()):
            if not re.match(OTHERS, line.partition("try:")[2].strip()):
                names = {command, *(set(re.findall("[a-z]+", line)) & known.keys())}
                for option in re.findall(OPTION, line):
                    assert any(option in known[one] for one in names), (command, line)
        require_words_of_the_shell(printed)
        hint = printed.partition("try:")[2].strip()
        assert hint, printed
        if missing:
            assert re.match(r"pip install '?[\w\[\]-]+'?", hint), hint
        others = missing or TYPED in steps or re.match(OTHERS, hint)
        named = [] if others else re.findall(rf"{COMMAND}|{OPTION}|{VALUE}", hint)
    # what the hint names is typed in what follows
    assert all(word in followed for word in named), (hint, followed)
    for step in steps:
        follow(step, refused, hint)
