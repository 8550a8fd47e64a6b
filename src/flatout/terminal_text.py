"""Text from files, servers and other programs, made safe to print."""

from __future__ import annotations

import re
import textwrap

# Control characters (C0, DEL, C1), lone surrogates, line and paragraph separators, and the characters that
# reorder the text around them: each could move the cursor, retitle the window or disguise a name.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(text: str) -> str:
    """Return ``text`` on one line: white space becomes a blank, other unsafe characters a visible escape."""
    return _UNSAFE.sub(_escaped, " ".join(text.splitlines()).replace("\t", " "))


def progress_lines(text: str) -> list[str]:
    """Return a sentence of progress as lines of at most 80 columns; a longer word, such as a path, is not broken."""
    return textwrap.wrap(
        one_line(text),
        80,
        initial_indent="flatout: ",
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
