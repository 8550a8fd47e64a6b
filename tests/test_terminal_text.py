"""Text made safe to print."""

from __future__ import annotations

import subprocess

import pytest

from flatout.terminal_text import one_line, progress_lines, readable, shell_line


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("plain é 猫 👩‍🔬", "plain é 猫 👩‍🔬"),
        ("\x1b[31mred\x07", "\\x1b[31mred\\x07"),
        ("a\u202egpj.exe", "a\\u202egpj.exe"),
        ("\udc80", "\\udc80"),
        ("\x9b2J", "\\x9b2J"),
    ],
)
def test_what_could_steer_a_terminal_becomes_a_visible_escape(text: str, safe: str) -> None:
    assert one_line(text) == safe


def test_line_breaks_and_tabs_become_blanks() -> None:
    assert one_line("a\nb\r\nc\td") == "a b c d"


def test_what_a_program_printed_becomes_lines_without_escape_codes() -> None:
    assert readable(b"\x1b]0;title\x07\x1b[1;31mred\x1b[0m\r\n 10%\r 20%\r\nlast \xff\x08\x1b(B") == (
        "red\n 10%\n 20%\nlast \ufffd\\x08"
    )


def test_progress_is_told_in_lines_of_80_columns_and_breaks_no_path() -> None:
    path = "/data/" + "x" * 90
    lines = progress_lines(f"{'word ' * 30}and {path}")
    assert lines[0].startswith("flatout: word") and lines[-1] == f"  {path}"
    assert max(map(len, lines[:-1])) <= 80 and len(lines) > 2


def test_a_command_can_be_pasted_whatever_its_arguments_hold() -> None:
    words = ["python", "a b.py", "x\ny", "it's\n\\n", "\x1b[0m", "\t", ""]
    line = shell_line(words)
    assert line == one_line(line)
    shown = subprocess.run(["bash", "-c", f"printf '%s|' {line}"], capture_output=True, text=True, check=True).stdout
    assert shown == "".join(f"{word}|" for word in words)
