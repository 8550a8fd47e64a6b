"""The report as a GitHub-flavoured Markdown page: the terminal's content and order, in tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from flatout.report import outline
from flatout.report.layout import Glyphs
from flatout.results import Diagnosis, Ledger
from flatout.terminal_text import shell_line
from flatout.units import counted, duration, interval, percent, same_unit

_BAR_WIDTH = 20
_GLYPHS = Glyphs(unicode=True)
# Characters that Markdown or HTML would take as markup when they come from a user's files.
_MARKUP = re.compile(r"([\\`*_\[\]<>|~#])")


def render_markdown(diagnosis: Diagnosis) -> str:
    """Write the whole report as a Markdown page that ends with the next command to type."""
    move, failure = outline.first_move(diagnosis), outline.failure_sentence(diagnosis)
    blocks = [
        "# Where the training time went",
        f"**{_text(diagnosis.verdict)}**",
        *([f"**{_text(failure)}**"] if failure else []),
        *([_text(move)] if move else []),
        _bullets(
            [
                f"command: {_code(shell_line(diagnosis.command))}",
                f"run: {_code(diagnosis.run_id)} in {_code(diagnosis.run_path)}",
                f"machine: {_text(diagnosis.machine)}",
            ]
        ),
        *_ledger(diagnosis.ledger),
        *_causes(diagnosis),
        *_remedies(diagnosis),
    ]
    for title, sentences in (
        ("Worth knowing", outline.finding_sentences(diagnosis.findings)),
        ("Not measured", outline.not_measured_sentences(diagnosis.not_measured)),
        ("Problems with this record", outline.other_problems(diagnosis)),
    ):
        if sentences:
            blocks += [f"## {title}", _bullets(map(_text, sentences))]
    blocks += ["## Next", f"```sh\n{_GLYPHS.text(diagnosis.next_command)}\n```"]
    return "\n\n".join(blocks)


def _ledger(ledger: Ledger | None) -> list[str]:
    if ledger is None:
        return ["## Where the time went", "Not measured, because the record holds no complete training step."]
    facts = _bullets(f"{name}: {_text(value)}" for name, value in outline.ledger_facts(ledger))
    if ledger.window_s <= 0:
        return ["## Where the time went", *map(_text, ledger.notes), facts]
    rows = []
    for row in outline.ledger_rows(ledger):
        # Leading blanks are dropped in a cell: the tree needs entities.
        label = "&emsp;" * len(row.last) + (_code(row.label) if row.share is None else _text(row.label))
        if row.note:
            label += f"<br>{'&emsp;' * (len(row.last) + 1)}<sub>{_text(row.note)}</sub>"
        if row.share is None:
            portion, picture = "", _code(row.source or "")
        else:
            portion, picture = percent(row.share, decimals=1), _GLYPHS.bar(row.share, _BAR_WIDTH)
        rows.append([label, portion, same_unit(row.seconds, ledger.window_s), picture])
    rows.append(["**training window**", "100.0%", same_unit(ledger.window_s, ledger.window_s), ""])
    blocks = [
        "## Where the time went",
        f"Training window: {counted(ledger.steps.count, 'step')} in {duration(ledger.window_s)}.",
        _table(["account", "share", "time", ""], rows, "lrrl"),
        *map(_text, ledger.notes),
        facts,
    ]
    header, epochs = outline.epoch_table(ledger)
    if epochs:
        cells = [[_text(cell) for cell in row] for row in epochs]
        alignment = "r" * (len(header) - 2) + "ll"
        blocks += ["### Epochs", _table([*map(_text, header)], cells, alignment), f"{outline.EPOCH_LEGEND}."]
    return blocks


def _causes(diagnosis: Diagnosis) -> list[str]:
    shown, hidden = outline.open_and_hidden(diagnosis)
    blocks = ["## What holds it back"]
    if not diagnosis.causes:
        return [*blocks, outline.no_cause(diagnosis)]
    for rank, cause in enumerate(shown, start=1):
        head = f"### {rank}. {_text(cause.title)}: {percent(cause.share)} of the training window"
        blocks += [head, f"{_code(cause.id)}, {outline.confidence_in_words(cause)}"]
        if cause.evidence:
            blocks.append(_bullets(map(_text, outline.evidence_texts(cause))))
    for hider, causes in hidden.items():
        blocks.append(outline.HIDDEN.format(cause=_code(hider)))
        blocks.append(_bullets(f"{_text(one.title)} ({_code(one.id)}): {percent(one.share)}" for one in causes))
    return blocks


def _remedies(diagnosis: Diagnosis) -> list[str]:
    if not diagnosis.remedies:
        return []
    paying, not_paying = outline.paying_and_not(diagnosis)
    blocks = ["## What to do", "Gain in samples/s: predicted, not yet measured."]
    if paying:
        header = ["", "remedy", "predicted gain", "class", "risk", "memory"]
        rows = [
            [
                str(rank),
                _text(remedy.title),
                outline.predicted(remedy),
                remedy.semantic_class,
                remedy.risk,
                outline.memory_in_words(remedy),
            ]
            for rank, remedy in enumerate(paying, start=1)
        ]
        shared, bases = outline.shared_basis(paying)
        blocks += [*([_text(shared)] if shared else []), _table(header, rows, "rlrlll")]
        blocks += [
            f"{rank}. {_code(remedy.how)}<br>Based on {_text(basis)}{f'<br>{overlap}' if overlap else ''}"
            for rank, (remedy, basis, overlap) in enumerate(
                zip(paying, bases, outline.overlaps(paying), strict=True), start=1
            )
        ]
    if plans := outline.plans(diagnosis):
        blocks.append(outline.TOGETHER)
        blocks.append(_bullets(f"{name}: {_text(content)}" for name, content in plans))
    if not_paying:
        blocks.append(outline.LITTLE_EFFECT)
        blocks.append(_bullets(f"{_text(one.title)}: predicted {interval(one.gain)}" for one in not_paying))
    legend = outline.class_legend(paying)
    return [*blocks, _text(legend)] if legend else blocks


def _text(text: str) -> str:
    return _MARKUP.sub(r"\\\1", _GLYPHS.text(text))


def _code(text: str) -> str:
    """Quote as code; backquotes in it need a longer fence."""
    text = _GLYPHS.text(text)
    if "`" not in text:
        return f"`{text}`"
    fence = "`" * (max(map(len, re.findall("`+", text))) + 1)
    return f"{fence} {text} {fence}"


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], alignment: str) -> str:
    # A pipe ends the cell, even in code.
    rows = [[re.sub(r"(?<!\\)\|", r"\|", cell) for cell in row] for row in rows]
    marks = {"l": ":--", "r": "--:"}
    lines = [header, [marks[letter] for letter in alignment], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
