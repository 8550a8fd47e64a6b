"""Installing for coding agents: nothing of anybody's file is lost, and nothing outside the project is touched."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from flatout.cli import main
from flatout.report.agent_files import BEGIN, END


def installed(folder: Path, *options: str) -> int:
    return main(["agents", "--install", str(folder), *options, "--write"])


def refused(capsys: pytest.CaptureFixture[str], code: int) -> str:
    """The one line of a refusal."""
    said = capsys.readouterr()
    assert code == 2 and said.out == "" and said.err.count("\n") == 1, said
    return said.err


def test_a_mark_that_a_sentence_mentions_is_the_users_text(tmp_path: Path) -> None:
    text = f"text that mentions {BEGIN} in a sentence\nours\nand {END} too\nend\n"
    (tmp_path / "AGENTS.md").write_text(text)
    assert installed(tmp_path) == 0
    written = (tmp_path / "AGENTS.md").read_text()
    assert written.startswith(f"{text}\n{BEGIN}\n")
    assert installed(tmp_path) == 0 and (tmp_path / "AGENTS.md").read_text() == written


def without_free_space(text: bytes) -> bytes:
    """Other tests write to the same disk."""
    return re.sub(rb"free on the disk.*", b"", text)


def test_line_ends_the_byte_order_mark_and_the_mode_stay(tmp_path: Path) -> None:
    file = tmp_path / "AGENTS.md"
    before = b"\xef\xbb\xbf# Mine\r\nline two\r\nlast"
    file.write_bytes(before)
    file.chmod(0o640)
    assert installed(tmp_path) == 0
    after = file.read_bytes()
    assert after.startswith(before + b"\r\n\r\n<!--") and after.count(b"\n") == after.count(b"\r\n")
    assert file.stat().st_mode & 0o7777 == 0o640
    assert (tmp_path / "AGENTS.md.before-flatout").read_bytes() == before
    assert installed(tmp_path) == 0 and without_free_space(file.read_bytes()) == without_free_space(after)


@pytest.mark.parametrize("write", [True, False])
def test_a_read_only_file_is_refused_for_root_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], write: bool
) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_text("mine\n")
    file.chmod(0o400)
    said = refused(capsys, main(["agents", "--install", str(tmp_path), *["--write"] * write]))
    assert "read-only (mode 0400)" in said and "chmod u+w" in said
    assert file.read_text() == "mine\n" and [path.name for path in tmp_path.iterdir()] == ["AGENTS.md"]


@pytest.mark.parametrize("options", [(), ("--mcp",), ("--skill",)])
@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "a link to itself"])
def test_what_is_no_file_is_refused_unopened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], kind: str
) -> None:
    name = {(): "AGENTS.md", ("--mcp",): ".mcp.json", ("--skill",): "skills/fast-training/SKILL.md"}[options]
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    {"a FIFO": os.mkfifo, "a folder": os.mkdir, "a link to itself": lambda it: os.symlink(it, it)}[kind](path)
    assert f"it is {kind}" in refused(capsys, installed(tmp_path, *options))


@pytest.mark.parametrize(
    ("link", "options"),
    [("AGENTS.md", ()), ("skills", ("--skill",)), (".mcp.json", ("--mcp",)), (".vscode", ("--mcp",))],
)
def test_a_link_that_leads_out_of_the_project_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], link: str, options: tuple[str, ...]
) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside"
    project.mkdir()
    outside.mkdir()
    (outside / "x").write_text("theirs")
    (project / link).symlink_to(outside if link in ("skills", ".vscode") else outside / "x")
    assert f"leads to {outside}" in refused(capsys, installed(project, *options))
    assert (outside / "x").read_text() == "theirs" and len(list(outside.iterdir())) == 1


def test_a_link_within_the_project_is_followed_and_stays(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/agents.md").write_text("ours\n")
    (tmp_path / "AGENTS.md").symlink_to("docs/agents.md")
    assert installed(tmp_path) == 0
    assert (tmp_path / "AGENTS.md").is_symlink() and BEGIN in (tmp_path / "docs/agents.md").read_text()


def test_the_copy_of_the_file_before_is_not_written_through_a_link(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "AGENTS.md").write_text("ours\n")
    (project / "AGENTS.md.before-flatout").symlink_to("../new")
    assert installed(project) == 0
    assert not (tmp_path / "new").exists() and (project / "AGENTS.md.before-flatout-1").read_text() == "ours\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"a": 1, "a": 2}', '"a" twice'),
        ('{"mcpServers": {"x": 1}, "mcpServers": {}}', '"mcpServers" twice'),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "-Infinity"),
        ('{"a": 1e400}', "1e400, which would be written as inf"),
        ('{"a": 1e-400}', "1e-400, which would be written as 0.0"),
        ('{"a": 0.12345678901234567890}', "0.12345678901234567890, which"),
        ('{"a": 1e-99999999999999999999}', "would be written as 0.0"),
        ('{"a": "\\ud800"}', "half a character"),
        ('{"mcpServers": null}', '"mcpServers" is null, but must be an object'),
        ('{"mcpServers": []}', '"mcpServers" is a list'),
        ("[]", "it is a list, but must be an object"),
        ("{\n// a comment\n}", "not JSON at line 2"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_settings_that_would_not_come_back_the_same_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    (tmp_path / ".mcp.json").write_text(content)
    assert said in refused(capsys, installed(tmp_path, "--mcp"))
    assert (tmp_path / ".mcp.json").read_text() == content and len(list(tmp_path.iterdir())) == 1


def test_nothing_is_written_if_one_of_the_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode/mcp.json").write_text("{}")
    (tmp_path / ".vscode/mcp.json").chmod(0o444)
    assert ".vscode/mcp.json: it is read-only" in refused(capsys, installed(tmp_path, "--mcp"))
    assert not (tmp_path / ".mcp.json").exists()


def test_settings_keep_their_byte_order_mark_line_ends_and_numbers(tmp_path: Path) -> None:
    (tmp_path / ".mcp.json").write_bytes(b'\xef\xbb\xbf{\r\n"a": 1.50, "b": 12345678901234567890}\r\n')
    assert installed(tmp_path, "--mcp") == 0
    written = (tmp_path / ".mcp.json").read_bytes()
    assert written.startswith(b'\xef\xbb\xbf{\r\n  "a": 1.5,') and written.count(b"\n") == written.count(b"\r\n")
    assert json.loads(written.decode("utf-8-sig"))["b"] == 12345678901234567890


@pytest.mark.parametrize("own", [{"command": "mine", "env": {"SECRET": "b"}}, "mine", {"args": ["mcp"]}])
def test_an_entry_of_the_users_own_stays_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own: Any
) -> None:
    content = json.dumps({"mcpServers": {"flatout": own}})
    (tmp_path / ".mcp.json").write_text(content)
    for options in ([], ["--write"]):
        assert main(["agents", "--install", str(tmp_path), "--mcp", *options]) == 0
        said = capsys.readouterr().out
        assert 'its entry "flatout" is your own and stays as it is' in said and "SECRET" not in said
    assert (tmp_path / ".mcp.json").read_text() == content


def test_an_entry_of_flatouts_is_renewed_and_what_was_added_stays(tmp_path: Path) -> None:
    assert installed(tmp_path, "--mcp") == 0
    written = json.loads((tmp_path / ".mcp.json").read_text())
    right = dict(written["mcpServers"]["flatout"])
    written["mcpServers"]["flatout"] |= {"command": "/old/python", "env": {"A": "b"}}
    (tmp_path / ".mcp.json").write_text(json.dumps(written))
    assert installed(tmp_path, "--mcp") == 0
    renewed = json.loads((tmp_path / ".mcp.json").read_text())
    assert renewed["mcpServers"]["flatout"] == {**right, "env": {"A": "b"}}
