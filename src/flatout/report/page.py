"""A page of fixed width that grows line by line: headings, paragraphs, lists and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.cells import cell_len
from rich.text import Text

from flatout.report.layout import Glyphs, left, wrap

MARGIN = 2
DIM = "dim"


class Page:
    """Lines of one width. Styles are decoration: the text is complete without them."""

    def __init__(self, width: int, glyphs: Glyphs) -> None:
        self.width = width
        self.glyphs = glyphs
        self.lines: list[Text] = []

    def line(self, *parts: tuple[str, str]) -> None:
        """Add one line of (text, style) parts that fit."""
        text = Text.assemble(*parts)
        text.rstrip()
        self.lines.append(text)

    def blank(self) -> None:
        """Add an empty line."""
        self.lines.append(Text())

    def heading(self, title: str, aside: str = "") -> None:
        """Start a section; the aside is set at the right edge."""
        self.blank()
        title, aside = self.glyphs.text(title), self.glyphs.text(aside)
        gap = self.width - cell_len(title) - cell_len(aside)
        if gap < 2:
            self.line((title, "bold"))
            self.paragraph(aside, style=DIM)
        else:
            self.line((title, "bold"), (" " * gap, ""), (aside, DIM))

    def paragraph(self, text: str, *, indent: int = MARGIN, mark: str = "", style: str = "", aside: str = "") -> None:
        """Add wrapped text; ``mark`` hangs before it, ``aside`` is set at the right edge of its first line."""
        text, aside = self.glyphs.text(text), self.glyphs.text(aside)
        hang = indent + len(mark)
        room = self.width - hang - (cell_len(aside) + 2 if aside else 0)
        for index, part in enumerate(wrap(text, room)):
            head = (" " * indent + mark) if index == 0 else " " * hang
            if index == 0 and aside:
                self.line((head, ""), (left(part, room), style), (f"  {aside}", style))
            else:
                self.line((head, ""), (part, style))

    def facts(self, facts: Iterable[tuple[str, str]]) -> None:
        """List names and their values in two columns."""
        facts = tuple(facts)
        name_width = max(len(name) for name, _ in facts) + 2
        room = self.width - MARGIN - name_width
        for name, value in facts:
            for index, part in enumerate(wrap(self.glyphs.text(value), room)):
                self.line((" " * MARGIN, ""), (left(name if index == 0 else "", name_width), DIM), (part, ""))

    def bullets(self, title: str, sentences: Iterable[str], style: str = "") -> None:
        """Add a section of sentences; does nothing if there are none."""
        sentences = tuple(sentences)
        if sentences:
            self.heading(title)
            for sentence in sentences:
                self.paragraph(sentence, mark="- ", style=style)

    def columns(self, rows: Iterable[Sequence[str]], aligned: Sequence[Callable[[str, int], str]]) -> list[str]:
        """Align cells in columns two blanks apart, with ``left`` or ``right`` for each column."""
        cells = [[self.glyphs.text(cell) for cell in row] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
        return [
            "  ".join(align(cell, width) for align, cell, width in zip(aligned, row, widths, strict=True)).rstrip()
            for row in cells
        ]
