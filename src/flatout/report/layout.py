"""Text in fixed columns: wrapping, shortening and bars, measured in terminal cells."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console

from flatout.terminal_text import one_line, shell_line, shell_word

WIDTH = 80
_SHORTEST_REST = 5  # cells of the arguments after a script
_TO_ASCII = str.maketrans(
    {
        "…": "...",
        "–": "-",
        "—": "-",
        "−": "-",
        "×": "x",
        "µ": "u",
        "·": "-",
        "→": "->",
        "≥": ">=",
        "≤": "<=",
        "‘": "'",
        "’": "'",
        "“": '"',
        "”": '"',
        "³": "3",
    }
)
_EIGHTHS = " ▏▎▍▌▋▊▉"


def console(stream: TextIO, *, soft_wrap: bool = False) -> Console:
    """What prints to a stream, of 80 columns where ``COLUMNS`` is zero: rich would then print nothing."""
    zero = set(os.environ.get("COLUMNS", "")) == {"0"}
    return Console(file=stream, highlight=False, soft_wrap=soft_wrap, width=WIDTH if zero else None)


@dataclass(frozen=True)
class Glyphs:
    """The characters that a report may use besides letters: Unicode, or ASCII where the encoding demands it."""

    unicode: bool = True

    @property
    def ellipsis(self) -> str:
        """The mark for text left out."""
        return "…" if self.unicode else "..."

    @property
    def rule(self) -> str:
        """One cell of a horizontal line."""
        return "─" if self.unicode else "-"

    def text(self, text: str) -> str:
        """Make text from a user's files safe to print: one line, no control characters, encodable."""
        safe = one_line("".join(" " if character.isspace() else character for character in text))
        if self.unicode:
            return safe
        return safe.translate(_TO_ASCII).encode("ascii", "replace").decode("ascii")

    def guides(self, last: tuple[bool, ...]) -> str:
        """Draw the branch before a row; ``last`` holds, for each level, whether it is the last of its siblings."""
        if not last:
            return ""
        branch, end = ("├─ ", "└─ ") if self.unicode else ("|- ", "`- ")
        return self.trunks(last[:-1]) + (end if last[-1] else branch)

    def trunks(self, last: tuple[bool, ...]) -> str:
        """Draw the lines that pass a row which is not itself a branch."""
        return "".join("   " if level else "│  " if self.unicode else "|  " for level in last)

    def bar(self, fraction: float, width: int) -> str:
        """Draw ``fraction`` (0..1) of ``width`` cells; what is not zero always shows."""
        filled = min(max(fraction, 0.0), 1.0) * width
        if not self.unicode:
            return "#" * max(round(filled), 1 if filled > 0 else 0)
        whole, eighths = divmod(round(filled * 8), 8)
        if not whole and not eighths and filled > 0:
            eighths = 1
        return "█" * whole + (_EIGHTHS[eighths] if eighths else "")


def wrap(text: str, width: int) -> list[str]:
    """Break text at spaces into lines of at most ``width`` cells; a longer word is broken, nothing is left out."""
    lines: list[str] = []
    current = ""
    for word in text.split():
        joined = f"{current} {word}" if current else word
        if cell_len(joined) <= width:
            current = joined
            continue
        if current:
            lines.append(current)
        *full, current = _pieces(word, width)
        lines.extend(full)
    if current or not lines:
        lines.append(current)
    return lines


def _pieces(word: str, width: int) -> list[str]:
    """A word too long for a line, broken after the last slash that leaves at least half a line; else anywhere."""
    pieces = []
    while cell_len(word) > width:
        first = chop_cells(word, width)[0] or word[0]  # a character may be wider than the line
        at = first.rfind("/") + 1
        if 2 * at >= len(first):
            first = first[:at]
        pieces.append(first)
        word = word[len(first) :]
    return [*pieces, word]


def shorten_middle(text: str, width: int, ellipsis: str) -> str:
    """Leave out the middle of a path or a source line; the end, the most informative part, keeps two thirds."""
    if cell_len(text) <= width:
        return text
    kept = width - cell_len(ellipsis)
    if kept < 2:
        return set_cell_size(text, width)
    head = kept // 3
    tail = text[-(kept - head) :]  # a character is at least one cell wide, except combining marks
    while cell_len(tail) > kept - head:
        tail = tail[1:]
    start = chop_cells(text[: 2 * head], head)[0] if head else ""
    return f"{start}{ellipsis}{tail}"


def short_command(words: Sequence[str], width: int, ellipsis: str) -> str:
    """A command in at most ``width`` cells; the name of its script goes last of all.

    What is left out first: the program's folder, that of a script with a long path, the middle of long arguments, the
    middle of all arguments, the program.
    """
    whole = shell_line(words)
    if cell_len(whole) <= width or len(words) < 2:
        return shorten_middle(whole, width, ellipsis)
    script = next((place for place, word in enumerate(words) if place and not word.startswith("-")), 0)
    room = width // 3
    quoted = [shell_word(word) for word in words]
    name = shell_word(words[script].rpartition("/")[2])
    quoted[0] = shell_word(words[0].rpartition("/")[2])
    quoted[script] = quoted[script] if cell_len(quoted[script]) <= room else name
    arguments = [shorten_middle(word, room, ellipsis) for word in quoted[script + 1 :]]
    short = " ".join([*quoted[: script + 1], *arguments])
    if cell_len(short) <= width:
        return short
    quoted[script] = name
    rest = " ".join(quoted[script + 1 :])
    for first in (0, script):
        head = " ".join(quoted[first : script + 1])
        left_over = width - cell_len(head) - 1
        if left_over >= _SHORTEST_REST or (not rest and left_over >= -1):
            return f"{head} {shorten_middle(rest, left_over, ellipsis)}".rstrip()
    return shorten_middle(quoted[script], width, ellipsis)


def left(text: str, width: int) -> str:
    """Pad text on the right to ``width`` cells."""
    return text + " " * (width - cell_len(text))


def right(text: str, width: int) -> str:
    """Pad text on the left to ``width`` cells."""
    return " " * (width - cell_len(text)) + text


def shell_lines(command: str, width: int) -> list[str]:
    """Break a command so that it can still be pasted: at spaces outside quotes, with a backslash at each break.

    An argument that is itself wider than ``width`` stays whole: breaking it could change its meaning.
    """
    arguments = re.findall(r"""(?:\\.|[^\s"'\\]|"(?:\\.|[^"\\])*"|'[^']*'|["'\\])+""", command)
    lines: list[str] = []
    current = ""
    for argument in arguments:
        joined = f"{current} {argument}" if current else argument
        if current and cell_len(joined) > width - 2:
            lines.append(f"{current} \\")
            current = argument
        else:
            current = joined
    return [*lines, current]
