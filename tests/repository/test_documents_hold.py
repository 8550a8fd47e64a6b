"""Every document of the repository: its links lead somewhere, its commands parse, what it quotes is in the source."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from flatout.cli import app

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "flatout"
BUILT = {"build", "dist"}
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part in BUILT for part in path.relative_to(ROOT).parts)
)
FENCED = re.compile(r"^( *)```[^\n]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
# A line to type: perhaps after a prompt, variables for it, and the folder of the program.
TYPED = re.compile(r"(?:\$ )?(?:\w+=\S+ )*(?:[\w./~-]*/)?flatout (?![a-z]+ (?:is|was|has) )(.+)")
ENDS = {"--", "|", ">", ">>", "&&", ";"}  # of what flatout itself reads
ELLIPSES = {"…", "..."}  # arguments that the document leaves out
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=str)


def text(document: Path | str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def prose(source: str) -> str:
    """Without fenced blocks."""
    return FENCED.sub("", source)


def anchors(source: str) -> set[str]:
    """Anchors of the headings, as GitHub makes them: lower case, punctuation dropped, repeated ones numbered."""
    found: set[str] = set()
    for heading in HEADING.findall(prose(source)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


def broken_links(document: Path) -> list[str]:
    broken = []
    for link in LINK.findall(INLINE.sub("", prose(text(document)))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / document).parent / path if path else ROOT / document
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    return broken


def commands(source: str) -> list[list[str]]:
    """The words after ``flatout`` of every command line, without the training command behind ``--``."""
    pieces = [piece.replace("\n", " ") for piece in INLINE.findall(prose(source))]
    blocks = [block for _, block in FENCED.findall(source)]
    blocks.append("\n".join(line for line in prose(source).splitlines() if line.startswith("    ")))
    for block in blocks:
        pieces += block.replace("\\\n", " ").splitlines()
    found = []
    for piece in pieces:
        typed = TYPED.fullmatch(piece.replace("\\|", "|").strip())
        if typed is None:
            continue
        words = shlex.split(typed[1], comments=True)
        end = next((place for place, word in enumerate(words) if word in ENDS), len(words))
        found.append([word for word in words[:end] if word not in ELLIPSES])
    return found


def complaint(words: list[str]) -> str:
    """What the command line has against these words; empty: nothing. Values are not looked at."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while True:
        context = type(command).context_class(command, **command.context_settings)
        try:
            _, rest, _ = command.make_parser(context).parse_args(rest)
        except typer.TyperException as error:
            return str(error.format_message())
        if not hasattr(command, "commands"):
            break
        if not rest:
            return ""
        if rest[0] not in command.commands:
            return f"{rest[0]}: no such command"
        command, rest = command.commands[rest[0]], rest[1:]
    takes_all = any(parameter.nargs == -1 for parameter in command.params)
    return f"too many arguments: {rest}" if rest and not takes_all else ""


@each_document
def test_every_link_leads_to_a_file_and_to_a_heading_in_it(document: Path) -> None:
    assert broken_links(document) == []


@each_document
def test_every_command_line_parses(document: Path) -> None:
    wrong = {shlex.join(words): why for words in commands(text(document)) if (why := complaint(words))}
    assert wrong == {}


def test_wrong_commands_are_found_wherever_they_stand() -> None:
    page = """
`flatout profle -- python a.py`, `flatout --debug report --no-such`, over two
lines: `flatout runs
one`, and `flatout profile -- python --no-such`.

    flatout stage only --jobs

```
$ flatout compare A B C     # too many
flatout profile --steps 3 -- python train.py --anything
```
"""
    found = commands(page)
    assert len(found) == 7
    assert [bool(complaint(words)) for words in found] == [True, True, True, False, True, False, True]


def test_links_to_nowhere_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "b.md").write_text("# One `two`\n# One two\n```\n# Not a heading\n```\n")
    links = ["b.md", "b.md#one-two", "b.md#one-two-1", "b.md#not-a-heading", "c.md", "#here", "https://example.org/x"]
    (tmp_path / "a.md").write_text("# Here\n" + " ".join(f"[x]({link})" for link in links) + " `[x](in-code.md)`\n")
    assert broken_links(Path("a.md")) == ["b.md#not-a-heading", "c.md"]


def strings_of_the_source() -> str:
    """Every piece of text in the source; of formatted strings the parts between the fields."""
    found = []
    for path in SOURCE.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        found += [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "\n".join(found)


def test_every_message_of_the_troubleshooting_page_is_one_that_flatout_prints() -> None:
    messages = re.findall(r"^### `(.+)`$", text("docs/troubleshooting.md"), flags=re.MULTILINE)
    assert len(messages) >= 25
    source = strings_of_the_source()
    lost = {
        message: [piece for piece in map(str.strip, message.split("…")) if piece not in source] for message in messages
    }
    assert {message: pieces for message, pieces in lost.items() if pieces} == {}


def test_every_variable_of_flatout_is_documented_and_no_other() -> None:
    pattern = re.compile(r"FLATOUT_[A-Z_]+[A-Z]")
    read = {name for path in SOURCE.rglob("*.py") for name in pattern.findall(path.read_text(encoding="utf-8"))}
    page = text("docs/environment.md")
    told = set(pattern.findall(page.partition("## For work on flatout")[0]))
    assert read - told == set()
    assert told - read == set()


def keys_of(schema: Any) -> set[str]:
    """Names of all properties of a JSON schema, at any depth."""
    parts = list(schema.values()) if isinstance(schema, dict) else schema if isinstance(schema, list) else []
    own = set(schema.get("properties", ())) if isinstance(schema, dict) else set()
    return own.union(*map(keys_of, parts))


def test_every_key_of_the_report_is_in_the_glossary() -> None:
    keys = keys_of(json.loads(text("docs/schema/report.schema.json")))
    assert {"window_s", "hidden_by", "gain"} <= keys
    words = set(re.findall(r"\w+", text("docs/glossary.md")))
    assert keys - words == set()


def test_every_document_in_docs_is_in_the_index() -> None:
    listed = set(LINK.findall(text("docs/README.md")))
    pages = {path.relative_to("docs").as_posix() for path in DOCUMENTS if path.parts[0] == "docs"}
    assert pages - listed - {"README.md"} == set()


@pytest.mark.slow
def test_the_examples_in_python_run_in_the_order_of_the_page(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the examples train")
    pytest.importorskip("pytorch_lightning", reason="one of the examples is a callback of it")
    examples = EXAMPLE.findall(text("docs/python.md"))
    assert len(examples) >= 4
    script = tmp_path / "examples.py"
    # DataLoader workers import the script again where they are spawned.
    script.write_text("\n".join(examples))
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "120"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
