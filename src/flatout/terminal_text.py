"""Text from files, servers and other programs, made safe to print."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable

# Control characters (C0, DEL, C1), lone surrogates, line and paragraph separators, and the characters that
# reorder the text around them: each could move the cursor, retitle the window or disguise a name.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

# Escape sequences of ECMA-48: with parameters (colours, the cursor), texts up to a bell or ST (titles), short ones.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")


def one_line(text: str) -> str:
    """Return ``text`` on one line: white space becomes a blank, other unsafe characters a visible escape."""
    return _UNSAFE.sub(_escaped, " ".join(text.splitlines()).replace("\t", " "))


def readable(output: bytes) -> str:
    """Return what a program printed as lines of text: without escape codes, and what a bar overwrote on lines too."""
    text = _ESCAPES.sub("", output.decode("utf-8", "replace"))
    lines = re.split(r"\r*\n|\r", text)
    return "\n".join(one_line(line) for line in lines)


def plain(text: str) -> str:
    """Return ``text`` on one line, without escape codes: colours, titles."""
    return one_line(_ESCAPES.sub("", text))


def shell_word(word: str) -> str:
    """Return ``word`` as it can be typed: on one line, also where it has line breaks or control characters."""
    if not _UNSAFE.search(word):
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"$'{_UNSAFE.sub(_escaped, escaped)}'"


def shell_line(words: Iterable[str]) -> str:
    """Return a command as it can be pasted into bash or zsh."""
    return " ".join(shell_word(word) for word in words)


def progress_lines(text: str) -> list[str]:
    """Return a sentence of progress as lines of at most 80 columns; a longer word, such as a path, is not broken."""
    return _lines(one_line(text), "flatout: ", "  ")


def folded(line: str) -> list[str]:
    """Return a line as lines of at most 80 columns; those that follow are indented by two more."""
    indent = " " * (len(line) - len(line.lstrip(" ")))
    return _lines(line.lstrip(" "), indent, indent + "  ")


def _lines(text: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text,
        80,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
