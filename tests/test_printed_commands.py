"""Every command line that flatout prints can be typed: its own command tree parses it."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

import flatout
from flatout.cli import app
from flatout.commands.train import resume_command
from flatout.diagnose.explanations import text
from flatout.diagnose.verdict import next_command
from flatout.trials.settings import SETTINGS, keep_command

SOURCES = Path(flatout.__file__).parent
COMMANDS: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {})
# In backticks, on a line of its own, after "Example:" and the like.
PRINTED = re.compile(
    r"(?<!`)`(flatout [a-z][^`]*)`(?!`)|(?:^|(?:[Ee]xample|[Nn]ext|one|with|as in):? +)(flatout [a-z].*)$", re.M
)
TRAINING = ("python", "train.py", "--data", "/my data")


def sentences(path: Path) -> Iterator[str]:
    """The texts of a module; what is filled in stands as a 1, which is also a number."""
    tree = ast.parse(path.read_text("utf-8"))
    docstring = tree.body[0].value if tree.body and isinstance(tree.body[0], ast.Expr) else None  # no user sees it
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if node is docstring:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "1" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            yield node.value


@cache
def printed() -> set[str]:
    texts = [sentence for path in SOURCES.rglob("*.py") for sentence in sentences(path)]
    return {quoted or plain for printed in (*texts, text()) for quoted, plain in PRINTED.findall(printed)}


def parse(line: str) -> None:
    """Parse a line as the shell and the command line would.

    Raises:
        AssertionError: there is no such command.
        TyperException: it has no such option, or no such argument.
    """
    words = shlex.split(line)
    assert words[0] == "flatout" and words[1] in COMMANDS, line
    if len(words) > 2:  # a command's bare name is a reference, not a line to type
        COMMANDS[words[1]].make_context(words[1], words[2:])


@pytest.mark.parametrize("line", sorted(printed()))
def test_what_the_source_prints_parses(line: str) -> None:
    command, *_ = re.split(r" > |[;,] ", line)  # what follows is a redirection, or prose
    parse(command.replace("…", "RECIPE"))


def test_the_sources_print_commands() -> None:
    assert {line.split()[1] for line in printed()} == set(COMMANDS)


def test_no_comment_or_docstring_names_a_command_that_is_not_there() -> None:
    named = {
        (str(path.relative_to(SOURCES)), name)
        for path in sorted(SOURCES.rglob("*.py"))
        for name in re.findall(r"`flatout ([a-z][a-z-]*)", path.read_text("utf-8"))
    }
    assert not {(path, name) for path, name in named if name not in COMMANDS}


@pytest.mark.parametrize(
    "line",
    [
        next_command("20261121-011500", TRAINING, (), ()),
        keep_command(TRAINING, {name: "a b" if setting.type is str else 1 for name, setting in SETTINGS.items()}),
        resume_command(
            "demo",
            Path("my run"),
            {
                "--data": "/my data", "--epochs": 9, "--batch-size": 8, "--max-time": "11m", "--set": ["a.b=[1, 2]"],
                "--no-wandb": True, "--wandb-project": "p", "--wandb-name": "n", "--no-record": True, "--json": True,
                "--quiet": True,
            },
        ),
    ],
)  # fmt: skip
def test_what_is_composed_parses(line: str) -> None:
    parse(line)


@pytest.mark.parametrize("line", ["flatout predict run", "flatout fix --folder x -- python train.py"])
def test_an_older_name_does_not_parse(line: str) -> None:
    with pytest.raises((AssertionError, typer.TyperException)):
        parse(line)
