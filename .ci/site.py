"""What mkdocs adds to docs/: the README and all that pages link to, where it lies, the commands
with their options, and the names of the library.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import trajcli

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(\]\()(?!https?:)([^)#\s]+)")
STYLE = """/* figures are drawn on white; long commands wrap, names of options do not */
.md-typeset img { background: white; }
.md-typeset pre > code { white-space: pre-wrap; }
.md-typeset td:first-child code { white-space: nowrap; }
"""
paths: dict[str, str] = {}
"""By their places on the site, the files of the repository."""


def on_files(files: Files, config: Any) -> Files:
    """Add what is not in docs/."""
    for name, lines in {"commands.md": _commands(), "api.md": _library()}.items():
        files.append(File.generated(config, name, content="\n".join(lines)))
    files.append(File.generated(config, "site.css", content=STYLE))
    paths.update({file.src_uri: f"docs/{file.src_uri}" for file in files.documentation_pages()})
    waiting = ["README.md", *paths.values()]
    while waiting:
        path = waiting.pop()
        if files.get_file_from_path(_place(path)) is None:
            paths[_place(path)] = path
            file = File.generated(config, _place(path), abs_src_path=str(ROOT / path))
            files.append(file)
        if path.endswith(".md") and (ROOT / path).exists():
            text = (ROOT / path).read_text(encoding="utf-8")
            targets = {_target(path, link) for _, link in LINK.findall(text)}
            waiting += sorted(t for t in targets if files.get_file_from_path(_place(t)) is None)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links between files of the repository become links between their places."""
    place = page.file.src_uri
    path, folder = paths[place], posixpath.dirname(place) or "."

    def moved(match: re.Match[str]) -> str:
        return match[1] + posixpath.relpath(_place(_target(path, match[2])), folder)

    return LINK.sub(moved, markdown)


def _target(path: str, link: str) -> str:
    """The file of the repository that a page of it links to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def _place(path: str) -> str:
    """Where a file of the repository is on the site."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")


def _library() -> Iterator[str]:
    yield "# Library\n"
    first = ("integrate", "differentiate", "Trajectory", "State")  # what most people look for
    functions = [name for name in trajcli.__all__ if name.islower()]
    names = dict.fromkeys((*first, *functions, "matrices", "rotations", *trajcli.__all__))
    yield from (f"::: trajcli.{name}\n" for name in names)


def _commands() -> Iterator[str]:
    """A section for each command: its help."""
    from trajcli.cli import command_line

    yield "# Commands\n"
    group: Any = command_line()
    for name, command in group.commands.items():
        yield f"## {name}\n\n{command.help}\n"
        panels: dict[str, list[str]] = {}
        for one in command.params:
            is_option = one.param_type_name == "option"
            flags = ", ".join(sorted(one.opts, key=len, reverse=True)) if is_option else ""
            usage = f"{flags} {one.metavar or ''}".strip().replace("|", " or ")
            title = one.rich_help_panel or ("Options" if is_option else "Arguments")
            required = " (required)" if one.required and is_option else ""
            panels.setdefault(title, []).append(_row(f"`{usage}`", f"{one.help}{required}"))
        for title, rows in panels.items():
            yield _table(title, rows)
        examples = re.findall(r"^ +(trajcli .*)$", command.epilog, re.MULTILINE)
        yield "\n".join(["```sh", *examples, "```", ""])


def _table(title: str, rows: Any) -> str:
    return "\n".join([f"| {title} | |", "| --- | --- |", *rows, ""])


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
