"""The Markdown page: the terminal's content in well-formed tables, with nothing of a user's files read as markup."""

from __future__ import annotations

import dataclasses
import re

import pytest

from flatout.report import outline
from flatout.report.markdown import render_markdown
from flatout.results import Account
from tests.report import diagnoses


def tables(page: str) -> list[list[str]]:
    return [block.split("\n") for block in page.split("\n\n") if block.startswith("|")]


@pytest.mark.parametrize("name", diagnoses.ALL)
def test_every_row_of_a_table_has_the_columns_of_its_header(name: str) -> None:
    for table in tables(render_markdown(diagnoses.ALL[name]())):
        columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
        assert len(columns) == 1, table
        assert re.fullmatch(r"(\| (:--|--:) )+\|", table[1])


def test_the_page_states_what_the_terminal_states() -> None:
    starved = diagnoses.starved()
    page = render_markdown(starved).replace("\\", "")
    assert starved.ledger is not None
    for text in (
        starved.verdict,
        starved.machine,
        starved.run_id,
        starved.next_command,
        *starved.problems,
        *(row.label for row in outline.ledger_rows(starved.ledger)),
        *(value for _, value in outline.ledger_facts(starved.ledger)),
        *(cause.title for cause in starved.causes),
        *(evidence.text for cause in starved.causes for evidence in cause.evidence),
        *(remedy.title for remedy in starved.remedies),
        *(remedy.how for remedy in outline.paying_and_not(starved)[0]),
        *outline.not_measured_sentences(starved.not_measured),
        "predicted 3.9x (3.1-4.6)",
        "7 min 37 s",
        "Partly explained by `storage_latency`",
    ):
        assert text in page, text


def test_the_verdict_comes_before_everything_but_the_title() -> None:
    title, verdict, *_ = render_markdown(diagnoses.healthy()).split("\n\n")
    assert title.startswith("# ")
    assert verdict == "**The training computes 98% of the time: there is nothing to gain from data.**"


def test_a_run_without_steps_has_no_ledger_table() -> None:
    page = render_markdown(diagnoses.without_steps())
    assert tables(page) == []
    assert "Not measured, because" in page


def test_markup_in_a_users_names_is_shown_as_it_is() -> None:
    healthy = diagnoses.healthy()
    assert healthy.ledger is not None
    odd = Account("host", "a|b *c* <script> `d`", 1.0, 0.15)
    ledger = dataclasses.replace(healthy.ledger, accounts=(odd,))
    page = render_markdown(dataclasses.replace(healthy, ledger=ledger, command=("run", "`x|y`")))
    assert r"a\|b \*c\* \<script\> \`d\`" in page
    assert "`` run '`x|y`' ``" in page
