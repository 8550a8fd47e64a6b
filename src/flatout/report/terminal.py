"""The report on a terminal: a pure function from a diagnosis to lines of at most 80 columns, and its printing."""

from __future__ import annotations

from typing import TextIO

from rich.cells import cell_len
from rich.text import Text

from flatout.report import outline
from flatout.report.layout import WIDTH, Glyphs, console, left, right, shell_lines, shorten_middle, wrap
from flatout.report.page import DIM, MARGIN, Page
from flatout.results import Diagnosis, Ledger
from flatout.terminal_text import shell_word
from flatout.units import counted, duration, interval, percent, same_unit

MIN_WIDTH = 64
_BAR_MIN = 16


def render(diagnosis: Diagnosis, *, width: int = WIDTH, unicode: bool = True) -> Text:
    """Lay the whole report out.

    Args:
        diagnosis: What to show.
        width: Columns that every line stays within; at least MIN_WIDTH.
        unicode: False writes ASCII only.

    Returns:
        Text with styles; its ``plain`` attribute is the report without colour. The last line is the
        next command to type.
    """
    page = Page(width, Glyphs(unicode))
    page.paragraph(diagnosis.verdict, indent=0, style="bold")
    failure = outline.failure_sentence(diagnosis)
    if failure:
        page.paragraph(failure, indent=0, style="bold red")
    move = outline.first_move(diagnosis)
    if move:
        page.paragraph(move, indent=0)
    page.blank()
    page.facts([("command", _command(page, diagnosis)), ("run", _run(page, diagnosis)), ("machine", diagnosis.machine)])
    _ledger(page, diagnosis)
    _causes(page, diagnosis)
    _remedies(page, diagnosis)
    page.bullets("Worth knowing", outline.finding_sentences(diagnosis.findings))
    page.bullets("Not measured", outline.not_measured_sentences(diagnosis.not_measured))
    page.bullets("Problems with this record", outline.other_problems(diagnosis), style="yellow")
    _next(page, diagnosis.next_command)
    return Text("\n").join(page.lines)


def print_report(diagnosis: Diagnosis, file: TextIO) -> None:
    """Print the report as the stream can show it: with colour on a terminal, in ASCII if UTF-8 is not supported."""
    encoding = (getattr(file, "encoding", None) or "ascii").lower().replace("-", "").replace("_", "")
    printer = console(file, soft_wrap=True)
    width = max(MIN_WIDTH, min(WIDTH, printer.width)) if printer.is_terminal else WIDTH
    printer.print(render(diagnosis, width=width, unicode=encoding.startswith("utf")))


def _command(page: Page, diagnosis: Diagnosis) -> str:
    """Write the command in at most about two lines."""
    arguments = (page.glyphs.text(shell_word(argument)) for argument in diagnosis.command)
    short = " ".join(shorten_middle(argument, page.width // 2, page.glyphs.ellipsis) for argument in arguments)
    return shorten_middle(short, 2 * (page.width - 16), page.glyphs.ellipsis)


def _run(page: Page, diagnosis: Diagnosis) -> str:
    """Write the run's id, which is never shortened, and its folder."""
    path = shorten_middle(page.glyphs.text(diagnosis.run_path), page.width - 16, page.glyphs.ellipsis)
    return f"{diagnosis.run_id} in {path}"


def _ledger(page: Page, diagnosis: Diagnosis) -> None:
    ledger = diagnosis.ledger
    if ledger is None:
        page.heading("Where the time went")
        page.paragraph("Not measured, because the record holds no complete training step.")
        return
    if ledger.window_s > 0:
        window = f"training window: {counted(ledger.steps.count, 'step')} in {duration(ledger.window_s)}"
        page.heading("Where the time went", window)
        page.blank()
        _tree(page, ledger)
    else:
        page.heading("Where the time went")
    for note in ledger.notes:
        page.paragraph(note, style=DIM)
    page.blank()
    page.facts(outline.ledger_facts(ledger))
    _epochs(page, ledger)


def _tree(page: Page, ledger: Ledger) -> None:
    """Draw account, share, seconds and bar; a line of code shows its text where the others have their bar."""
    glyphs = page.glyphs
    rows = outline.ledger_rows(ledger)
    total = "training window"
    times = [same_unit(row.seconds, ledger.window_s) for row in rows]
    total_time = same_unit(ledger.window_s, ledger.window_s)
    time_width = max(map(len, [*times, total_time]))
    numbers_width = len("  100.0%  ") + time_width
    longest = max(len(total), *(len(glyphs.guides(row.last)) + cell_len(glyphs.text(row.label)) for row in rows))
    label_width = min(longest, page.width - MARGIN - numbers_width - 2 - _BAR_MIN)
    bar_width = page.width - MARGIN - label_width - numbers_width - 2

    for row, time, below in zip(rows, times, [*(row.last for row in rows[1:]), ()], strict=True):
        guide = glyphs.guides(row.last)
        passing = glyphs.trunks((*row.last, len(below) <= len(row.last)))
        first, *more = wrap(glyphs.text(row.label), label_width - len(guide))
        portion = percent(row.share, decimals=1) if row.share is not None else ""
        style = DIM if row.share is None else ""
        if row.share is None:
            picture = (shorten_middle(glyphs.text(row.source or ""), bar_width, glyphs.ellipsis), DIM)
        else:
            picture = (glyphs.bar(row.share, bar_width), "blue" if row.last else "cyan")
        page.line(
            (" " * MARGIN, ""),
            (guide, DIM),
            (left(first, label_width - len(guide)), style),
            (f"  {right(portion, 6)}  {right(time, time_width)}  ", style),
            picture,
        )
        room = page.width - MARGIN - len(passing)
        for part in [*more, *(wrap(glyphs.text(row.note), room) if row.note else [])]:
            page.line((" " * MARGIN, ""), (passing, DIM), (part, style if part in more else DIM))
    page.line((" " * MARGIN + glyphs.rule * (label_width + numbers_width), DIM))
    page.line((f"{' ' * MARGIN}{left(total, label_width)}  100.0%  {right(total_time, time_width)}", ""))


def _epochs(page: Page, ledger: Ledger) -> None:
    """Tabulate the epochs, with as many accounts as fit."""
    for n_accounts in (2, 1, 0):
        header, rows = outline.epoch_table(ledger, n_accounts=n_accounts)
        if not rows:
            return
        # Long names of accounts take several header lines; the last is directly above the numbers.
        names = [wrap(page.glyphs.text(name), 12) for name in header]
        depth = max(map(len, names))
        headers = [list(cells) for cells in zip(*([""] * (depth - len(name)) + name for name in names), strict=True)]
        lines = page.columns([*headers, *rows], [right] * (len(header) - 2) + [left] * 2)
        if max(map(cell_len, lines)) <= page.width - MARGIN:
            break
    page.heading("Epochs", outline.EPOCH_LEGEND)
    page.blank()
    for index, text in enumerate(lines):
        page.line((" " * MARGIN + text, DIM if index < depth else ""))


def _causes(page: Page, diagnosis: Diagnosis) -> None:
    shown, hidden = outline.open_and_hidden(diagnosis)
    page.heading("What holds it back", "share of the training window" if diagnosis.causes else "")
    if not diagnosis.causes:
        page.paragraph(outline.no_cause(diagnosis))
    for rank, cause in enumerate(shown, start=1):
        page.blank()
        mark = f"{rank}. "
        page.paragraph(cause.title, mark=mark, style="bold", aside=percent(cause.share))
        indent = MARGIN + len(mark)
        page.paragraph(f"{cause.id}, {outline.confidence_in_words(cause)}", indent=indent, style=DIM)
        for text in outline.evidence_texts(cause):
            page.paragraph(text, indent=indent, mark="- ")
    for hider, causes in hidden.items():
        page.blank()
        page.paragraph(outline.HIDDEN.format(cause=hider))
        for cause in causes:
            page.paragraph(f"{cause.title} ({cause.id})", mark="- ", aside=percent(cause.share))


def _remedies(page: Page, diagnosis: Diagnosis) -> None:
    if not diagnosis.remedies:
        return
    paying, not_paying = outline.paying_and_not(diagnosis)
    page.heading("What to do", "gain in samples/s: predicted, not yet measured")
    table = [
        [
            outline.predicted(remedy),
            remedy.semantic_class,
            f"{remedy.risk} risk",
            f"memory {outline.memory_in_words(remedy)}",
        ]
        for remedy in paying
    ]
    shared, bases = outline.shared_basis(paying)
    if shared:
        page.paragraph(shared, style=DIM)
    columns = page.columns(table, [left] * 4)
    widest = MARGIN + len(f"{len(paying)}. ") + max(map(cell_len, columns), default=0)
    if widest > page.width:
        columns = ["; ".join(cells) for cells in table]
    rows = zip(paying, columns, bases, outline.overlaps(paying), strict=True)
    for rank, (remedy, figures, basis, overlap) in enumerate(rows, start=1):
        page.blank()
        mark = f"{rank}. "
        indent = MARGIN + len(mark)
        page.paragraph(remedy.title, mark=mark, style="bold")
        if indent + cell_len(figures) <= page.width:
            page.line((" " * indent + figures, "green"))
        else:
            page.paragraph(figures, indent=indent, style="green")
        page.paragraph(remedy.how, indent=indent)
        page.paragraph(f"Based on {basis}", indent=indent, style=DIM)
        if overlap:
            page.paragraph(overlap, indent=indent)
    if plans := outline.plans(diagnosis):
        page.blank()
        page.paragraph(outline.TOGETHER)
        for name, content in plans:
            page.paragraph(f"{name}: {content}", indent=MARGIN, mark="- ")
    if not_paying:
        page.blank()
        page.paragraph(outline.LITTLE_EFFECT)
        for remedy in not_paying:
            page.paragraph(remedy.title, indent=MARGIN, mark="- ", aside=f"predicted {interval(remedy.gain)}")
    legend = outline.class_legend(paying)
    if legend:
        page.blank()
        page.paragraph(legend, style=DIM)


def _next(page: Page, command: str) -> None:
    page.blank()
    command = page.glyphs.text(command)
    prefix = "Next: "
    if len(prefix) + cell_len(command) <= page.width:
        page.line((prefix, "bold"), (command, "cyan"))
        return
    page.line(("Next:", "bold"))
    for part in shell_lines(command, page.width - MARGIN):
        page.line((" " * MARGIN + part, "cyan"))
