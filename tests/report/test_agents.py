"""The guide for coding agents: what it says holds, and installing it loses nothing of anybody's file."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import typer

from flatout.cli import app, main
from flatout.machine.snapshot import take_snapshot
from flatout.report.agent_files import BEGIN, END, section_change
from flatout.report.agent_guide import COMMANDS, guide_lines

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_guide_is_short_and_has_this_machines_numbers(tmp_path: Path) -> None:
    machine = take_snapshot()
    lines = guide_lines(machine, tmp_path)
    assert len(lines) <= 120 and machine.one_line() in lines[4]
    assert any(f"free on the disk of {tmp_path}" in line for line in lines)


def test_an_assumed_gpu_stands_apart_from_what_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agents", "--assume", "nvidia a10"]) == 0
    text = capsys.readouterr().out
    assert "### Assumed, and not measured here\n\n- A10: 24.0 GiB, 600 GB/s" in text and len(text.splitlines()) <= 120
    assert main(["agents", "--assume", "A11"]) == 2
    assert "--assume A11: no figures of this GPU are known: did you mean" in capsys.readouterr().err


@pytest.mark.parametrize("command", [command for _, command in COMMANDS])
def test_every_command_of_the_guide_is_one_with_these_options(command: str) -> None:
    name, *words = shlex.split(command)[1:]
    known = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    options = {option for parameter in known.params for option in parameter.opts}
    own = words[: words.index("--")] if "--" in words else words
    assert {word for word in own if word.startswith("--")} <= options


def test_a_section_is_shown_then_written_then_renewed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_text("# Ours\n\nUse tabs.")
    assert main(["agents", "--install", str(tmp_path)]) == 0
    assert file.read_text() == "# Ours\n\nUse tabs." and "+" + BEGIN in capsys.readouterr().out
    assert main(["agents", "--install", str(tmp_path), "--write"]) == 0
    first = file.read_text()
    assert first.startswith("# Ours\n\nUse tabs.\n\n" + BEGIN) and first.endswith(END + "\n")
    assert (tmp_path / "AGENTS.md.before-flatout").read_text() == "# Ours\n\nUse tabs."
    file.write_text(first.replace("### Rules", "### Old rules") + "\nAfter it.\n")
    assert main(["agents", "--install", str(tmp_path), "--write"]) == 0
    renewed = file.read_text()
    assert renewed.count(BEGIN) == 1 and "Old rules" not in renewed and renewed.endswith(END + "\n\nAfter it.\n")
    assert (tmp_path / "AGENTS.md.before-flatout-1").exists()


def test_a_skill_is_a_file_of_its_own(tmp_path: Path) -> None:
    assert main(["agents", "--install", str(tmp_path), "--skill", "--write"]) == 0
    text = (tmp_path / "skills/fast-training/SKILL.md").read_text()
    assert text.startswith("---\nname: fast-training\n") and "### Rules" in text


def test_the_servers_entry_stands_beside_those_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".vscode").mkdir()
    ours = tmp_path / ".mcp.json"
    ours.write_text('{"mcpServers": {"other": {"command": "x"}}, "mine": 1}')
    assert main(["agents", "--install", str(tmp_path), "--mcp"]) == 0
    assert "flatout" not in ours.read_text() and "Nothing was changed" in capsys.readouterr().out
    assert main(["agents", "--install", str(tmp_path), "--mcp", "--write"]) == 0
    written = json.loads(ours.read_text())
    entry = written["mcpServers"].pop("flatout")
    assert written == {"mcpServers": {"other": {"command": "x"}}, "mine": 1}
    assert json.loads((tmp_path / ".vscode/mcp.json").read_text()) == {"servers": {"flatout": entry}}
    assert entry["args"] == ["-m", "flatout", "mcp", "--root", str(tmp_path)]
    assert not (tmp_path / ".cursor").exists() and (tmp_path / ".mcp.json.before-flatout").exists()
    assert main(["agents", "--install", str(tmp_path), "--mcp", "--write"]) == 0
    assert not (tmp_path / ".mcp.json.before-flatout-1").exists()
    ours.write_text("{ // with a comment\n}")
    assert main(["agents", "--install", str(tmp_path), "--mcp", "--write"]) == 2
    assert "comments, perhaps" in capsys.readouterr().err and ours.read_text() == "{ // with a comment\n}"


@pytest.mark.parametrize(
    ("words", "content", "said"),
    [
        (["--write"], None, "--write: belongs to --install FOLDER"),
        (["--mcp", "--assume", "A10"], None, "--assume A10: belongs to the guide, which --mcp does not write"),
        (["--install", "absent"], None, "there is no such folder"),
        (["--install", ".", "--write"], f"{BEGIN}\nhalf", "do not enclose one section"),
        (["--install", ".", "--write"], f"a\n{END}\nb", "do not enclose one section"),
        (["--install", ".", "--write"], f"{END}\na\n{BEGIN}\n", "do not enclose one section"),
        (["--install", ".", "--write"], f"{BEGIN}\n{BEGIN}\na\n{END}\n", "do not enclose one section"),
        (["--install", ".", "--write"], b"\xff\xfe\x00", "it is no UTF-8 text"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    words: list[str], content: str | bytes | None, said: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    given = content.encode() if isinstance(content, str) else content
    if given is not None:
        Path("AGENTS.md").write_bytes(given)
    assert main(["agents", *words]) == 2
    assert said in capsys.readouterr().err
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([] if given is None else [given])


def test_a_section_of_an_empty_project_stands_alone(tmp_path: Path) -> None:
    assert section_change(tmp_path / "AGENTS.md", "text").after == f"{BEGIN}\ntext\n{END}\n"


def test_the_index_for_programs_names_pages_that_are_there() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (DOCS / "llms.txt").read_text())
    assert len(links) > 10 and all((DOCS / link).is_file() for link in links)
