"""The terminal report: width, order, numbers, and how it looks where colour or UTF-8 is missing."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest
from rich.cells import cell_len

from flatout.report.markdown import render_markdown
from flatout.report.outline import TOGETHER, ledger_rows
from flatout.report.terminal import MIN_WIDTH, print_report, render
from flatout.results import Account, Cause, Diagnosis, Epoch, Evidence, Gain, Line, RemedyBundle
from tests.report import diagnoses

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def lines_of(diagnosis: Diagnosis, *, unicode: bool = True) -> list[str]:
    return render(diagnosis, unicode=unicode).plain.split("\n")


def row(lines: list[str], label: str) -> str:
    return next(line for line in lines if re.match(rf"[ │├└─|`-]*{re.escape(label)} ", line))


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("width", [MIN_WIDTH, 72, 80])
@pytest.mark.parametrize("name", diagnoses.ALL)
def test_every_line_fits_and_none_trails_blanks(name: str, width: int, unicode: bool) -> None:
    for line in render(diagnoses.ALL[name](), width=width, unicode=unicode).plain.split("\n"):
        assert cell_len(line) <= width, line
        assert line == line.rstrip()


def test_wide_characters_of_a_users_files_count_double() -> None:
    starved = diagnoses.starved()
    wide = Cause("storage_latency", "読み込み" * 20, 0.7, 0.9, (Evidence("データ" * 40),))
    for line in lines_of(dataclasses.replace(starved, causes=(wide,))):
        assert cell_len(line) <= 80, line


def test_verdict_comes_first_and_the_next_command_last() -> None:
    lines = lines_of(diagnoses.healthy())
    assert lines[0] == "The training computes 98% of the time: there is nothing to gain from data."
    assert lines[-1] == "Next: flatout report 20261121-020000-0b1c --markdown"


def test_sections_follow_the_order_of_the_argument() -> None:
    text = "\n".join(lines_of(diagnoses.starved()))
    order = [
        "The GPU waits for data 79%",
        "Largest predicted gain: 3.9x (3.1-4.6)",
        "Where the time went",
        "Epochs",
        "What holds it back",
        "What to do",
        "Not measured",
        "Problems with this record",
        "Next:",
    ]
    positions = [text.index(part) for part in order]
    assert positions == sorted(positions)


def test_ledger_shows_share_and_seconds_of_accounts_and_of_the_unaccounted() -> None:
    lines = lines_of(diagnoses.starved())
    assert "79.1%  561.2 s" in row(lines, "batch wait")
    assert "71.0%  503.7 s" in row(lines, "workers blocked on reads")
    assert "1.1%    7.6 s" in row(lines, "unaccounted")
    assert "100.0%  709.4 s" in row(lines, "training window")


def test_top_level_shares_add_up_with_the_small_ones_summed_up() -> None:
    lines = lines_of(diagnoses.starved())
    start = lines.index(row(lines, "batch wait"))
    end = lines.index(row(lines, "training window"))
    tops = [line for line in lines[start:end] if re.match(r"  \w", line)]
    shares = [float(found[1]) for line in tops if (found := re.search(r"(\d+\.\d)%  ", line))]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))
    assert "others, each under 0.5%" in "\n".join(tops)
    assert "checkpoint writes" not in "\n".join(lines)


def test_unaccounted_is_shown_when_it_is_nothing() -> None:
    healthy = diagnoses.healthy()
    assert healthy.ledger is not None
    ledger = dataclasses.replace(healthy.ledger, unaccounted_s=0.0)
    assert "0.0%  0.00 s" in row(lines_of(dataclasses.replace(healthy, ledger=ledger)), "unaccounted")


def test_a_single_small_account_keeps_its_name() -> None:
    healthy = diagnoses.healthy()
    assert healthy.ledger is not None
    tiny = Account("logging", "log writes", 0.01, 0.0015)
    ledger = dataclasses.replace(healthy.ledger, accounts=(*healthy.ledger.accounts, tiny))
    lines = lines_of(dataclasses.replace(healthy, ledger=ledger))
    assert "0.1%" in row(lines, "log writes")
    assert not any("others" in line for line in lines)


def test_hot_lines_stand_below_their_account_with_file_line_and_seconds() -> None:
    lines = lines_of(diagnoses.starved())
    position = lines.index(row(lines, "blocking reads of the device"))
    assert "train.py:141" in lines[position + 1]
    assert "17.9 s  running_loss += loss.item()" in lines[position + 1]


def test_start_up_and_ending_are_apart_from_the_window() -> None:
    text = " ".join(" ".join(lines_of(diagnoses.starved())).split())
    assert "12.3 s to the end of the first step: imports 7.1 s, first batch 4.4 s, other 800 ms" in text
    assert "2.3 s after the training window" in text


def test_epochs_tell_cold_from_warm_and_a_cut_off_one() -> None:
    lines = lines_of(diagnoses.starved())
    assert re.search(r"1 +195 +7 min 37 s +109 +91\.2% +5\.0% +cold$", row(lines, "1"))
    assert re.search(r"2 +195 +2 min 16 s +366 +72\.0% +17\.0% +warm$", row(lines, "2"))
    assert row(lines, "3").endswith("warm  cut off")


def test_one_epoch_makes_no_table() -> None:
    assert not any(line.startswith("Epochs") for line in lines_of(diagnoses.healthy()))


def test_of_many_epochs_the_middle_ones_are_summed_up() -> None:
    starved = diagnoses.starved()
    assert starved.ledger is not None
    epochs = tuple(Epoch(index, 60.0 + index, 195, 49920, None, True, {}) for index in range(90))
    lines = lines_of(dataclasses.replace(starved, ledger=dataclasses.replace(starved.ledger, epochs=epochs)))
    assert re.search(r"5-88 +1 min 46 s +median$", row(lines, "5-88"))
    assert "not measured" in row(lines, "90")
    assert len(lines) < 100


def test_causes_keep_their_rank_with_share_confidence_and_evidence() -> None:
    text = "\n".join(lines_of(diagnoses.starved()))
    assert re.search(r"1\. Reads from remote storage keep the workers waiting +71%", text)
    assert "storage_latency, high confidence" in text
    assert "503.7 s of the 561.2 s of batch wait" in text
    assert text.index("storage_latency, high") < text.index("worker_restart, medium")


def test_a_hidden_cause_names_what_hides_it() -> None:
    text = "\n".join(lines_of(diagnoses.starved()))
    hidden = text.index("Partly explained by storage_latency; check again once that is fixed:")
    assert text.index("(device_sync)") > hidden
    assert "3. " not in text[hidden : text.index("What to do")]


def test_a_gain_is_called_predicted_and_has_its_interval_class_risk_and_memory() -> None:
    text = "\n".join(lines_of(diagnoses.starved()))
    assert "predicted, not yet measured" in text
    assert "predicted 1.85x (1.60-1.98)  identical  low risk  memory +1.2 GiB" in text


def test_a_remedy_of_about_one_is_listed_apart() -> None:
    text = "\n".join(lines_of(diagnoses.starved()))
    assert text.index("Little effect now") < text.index("train in bfloat16 (autocast)")
    assert "predicted 1.01x (1.00-1.02)" in text


@pytest.mark.parametrize("gain", [Gain(4.0, 0.97, 5.12), Gain(4.0, 1.5, 4.8)])
def test_an_uncertain_gain_is_not_announced_and_marked_in_the_list(gain: Gain) -> None:
    starved = diagnoses.starved()
    first, *others = starved.remedies
    unsure = dataclasses.replace(first, gain=gain)
    lines = lines_of(dataclasses.replace(starved, remedies=(unsure, *others)))
    assert "Largest predicted gain, uncertain ones aside: 1.85x (1.60-1.98)" in "\n".join(lines)
    marked = [line for line in lines if ", uncertain" in line and "predicted 4.0x" in line]
    assert len(marked) == 1
    alone = "\n".join(lines_of(dataclasses.replace(starved, remedies=(unsure,))))
    assert "Largest predicted gain" not in alone and ", uncertain" in alone


def test_an_uncertain_gain_whose_least_is_more_than_the_best_sure_one_is_announced() -> None:
    starved = diagnoses.starved()
    first, *others = starved.remedies
    unsure = dataclasses.replace(first, gain=Gain(6.1, 1.9, 15.0))
    text = "\n".join(lines_of(dataclasses.replace(starved, remedies=(unsure, *others))))
    assert "Largest predicted gain: 6.1x (1.9-15.0), uncertain, in samples/s:" in text


def test_no_gain_is_announced_when_no_remedy_pays() -> None:
    starved = diagnoses.starved()
    flat = tuple(dataclasses.replace(remedy, gain=Gain(1.0, 0.99, 1.01)) for remedy in starved.remedies)
    text = "\n".join(lines_of(dataclasses.replace(starved, remedies=flat)))
    assert "Largest predicted gain" not in text
    assert text.count("predicted 1.00x (0.99-1.01)") == 3


def test_unknown_memory_is_not_none() -> None:
    starved = diagnoses.starved()
    unknown = dataclasses.replace(starved.remedies[0], memory_bytes=None)
    text = "\n".join(lines_of(dataclasses.replace(starved, remedies=(unknown,))))
    assert "memory not known" in text


def test_what_was_not_measured_says_why_once_for_each_reason() -> None:
    text = " ".join(" ".join(lines_of(diagnoses.starved())).split())
    assert "cpu_decode, cpu_transform: not measured, because no stack sample fell into a worker's fetch" in text


def test_no_batch_size_gives_no_rate() -> None:
    text = "\n".join(lines_of(diagnoses.partly_measured()))
    assert "not measured, because no batch size was seen" in text
    assert "nan" not in text
    assert " 0 samples/s" not in text


def test_a_run_without_steps_says_so_and_shows_the_problem() -> None:
    lines = lines_of(diagnoses.without_steps())
    assert lines[0] == "No training step was seen."
    assert any("Not measured, because the record holds no complete training step." in line for line in lines)
    assert any("FileNotFoundError" in line for line in lines)


def test_a_window_without_steps_is_no_table_of_zeros() -> None:
    healthy = diagnoses.healthy()
    assert healthy.ledger is not None
    steps = dataclasses.replace(healthy.ledger.steps, count=0, median_s=0.0)
    ledger = dataclasses.replace(healthy.ledger, window_s=0.0, accounts=(), unaccounted_s=0.0, epochs=(), steps=steps)
    empty = dataclasses.replace(healthy, ledger=ledger, causes=(), remedies=())
    for text in ("\n".join(lines_of(empty)), render_markdown(empty)):
        assert "Not known, because no step was measured." in text and "start-up" in text
        assert "No cause" not in text and "median" not in text and "unaccounted" not in text


def test_a_run_id_is_never_shortened() -> None:
    assert any("20261121-030000-77aa" in line and "…" not in line for line in lines_of(diagnoses.partly_measured()))


class Stream(io.StringIO):
    """A stream that claims to be a terminal, or not, with some encoding."""

    def __init__(self, encoding: str, tty: bool) -> None:
        super().__init__()
        self._encoding = encoding
        self._tty = tty

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding

    def isatty(self) -> bool:
        return self._tty


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    return monkeypatch


def printed(encoding: str = "utf-8", *, tty: bool) -> str:
    stream = Stream(encoding, tty)
    print_report(diagnoses.starved(), stream)
    return stream.getvalue()


def test_colour_changes_no_word_and_no_width(terminal: pytest.MonkeyPatch) -> None:
    coloured = printed(tty=True)
    assert "\x1b[" in coloured
    plain = ANSI.sub("", coloured)
    assert [line.rstrip() for line in plain.splitlines()] == lines_of(diagnoses.starved())


def test_a_pipe_gets_no_escape_codes(terminal: pytest.MonkeyPatch) -> None:
    assert "\x1b" not in printed(tty=False)


def test_no_color_and_a_dumb_terminal_get_no_colours(terminal: pytest.MonkeyPatch) -> None:
    terminal.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3\d", printed(tty=True))
    terminal.delenv("NO_COLOR")
    terminal.setenv("TERM", "dumb")
    assert "\x1b" not in printed(tty=True)


@pytest.mark.parametrize("columns", ["0", "00", "1"])
def test_a_terminal_without_columns_gets_the_whole_report(terminal: pytest.MonkeyPatch, columns: str) -> None:
    terminal.setenv("COLUMNS", columns)
    assert printed(tty=False).splitlines() == lines_of(diagnoses.starved())
    assert len(printed(tty=True).splitlines()) >= len(lines_of(diagnoses.starved()))


def test_without_utf8_the_report_is_ascii(terminal: pytest.MonkeyPatch) -> None:
    text = printed("ANSI_X3.4-1968", tty=False)
    assert text.isascii()
    assert "####" in text
    assert "█" in printed("UTF-8", tty=False)


def test_a_narrow_terminal_gets_narrow_lines(terminal: pytest.MonkeyPatch) -> None:
    terminal.setenv("COLUMNS", "64")
    assert max(cell_len(line) for line in ANSI.sub("", printed(tty=True)).splitlines()) <= 64


def test_a_line_of_code_stands_once_in_its_account() -> None:
    line = Line("/home/me/train.py", 12, "", "", 30.0)
    child = Account("host_other.train.py:12", "train.py:12", 30.0, 0.3, lines=(line,))
    account = Account("host_other", "other code", 40.0, 0.4, (child,), (line,))
    whole = diagnoses.healthy().ledger
    assert whole is not None
    ledger = dataclasses.replace(whole, accounts=(account,))
    rows = [row.label for row in ledger_rows(ledger)]
    assert rows == ["other code", "train.py:12", "unaccounted"]


def test_plans_of_several_remedies_are_shown_as_a_whole() -> None:
    titles = ("raise num_workers", "decode once")
    of_two = RemedyBundle("moderate", {"num_workers": 8}, titles, Gain(2.0, 1.5, 2.5), -(1 << 20), "medium")
    of_one = dataclasses.replace(of_two, name="conservative", remedies=titles[:1])
    diagnosis = dataclasses.replace(diagnoses.starved(), plans=(of_one, of_two))
    text = " ".join(" ".join(lines_of(diagnosis)).split())
    shown = "moderate: 2.0x (1.5-2.5), medium risk, memory -1.0 MiB: raise num_workers; decode once"
    assert f"{TOGETHER} - {shown}" in text and "conservative" not in text
    assert "- moderate: 2.0x (1.5-2.5), medium risk, memory -1.0 MiB" in render_markdown(diagnosis)


def test_an_assumption_of_all_predictions_is_said_once() -> None:
    made = diagnoses.starved()
    crowded = [
        dataclasses.replace(one, basis=f"{one.basis}; other processes go on using 1.8 cores") for one in made.remedies
    ]
    text = " ".join(" ".join(lines_of(dataclasses.replace(made, remedies=tuple(crowded)))).split())
    assert text.count("other processes go on using 1.8 cores") == 1


def test_a_remedy_that_adds_nothing_names_the_one_before_it() -> None:
    first, second = diagnoses.starved().remedies[:2]
    pair = (first, dataclasses.replace(second, adds_nothing_to=first.id, gain=first.gain))
    diagnosis = dataclasses.replace(diagnoses.starved(), remedies=pair)
    assert "Predicted to add nothing to 1." in " ".join(lines_of(diagnosis))
    assert "<br>Predicted to add nothing to 1." in render_markdown(diagnosis)


@pytest.mark.parametrize(("count", "shown"), [(4, 4), (5, 5), (6, 4), (9, 4)])
def test_of_a_steps_operators_the_costliest_are_shown_and_the_rest_counted(count: int, shown: int) -> None:
    operators = [Evidence(f"conv{number}: 10%", {"operator": "conv", "share": 0.1}) for number in range(count)]
    evidence = (Evidence("before", {}), *operators, Evidence("after", {}))
    lines = lines_of(dataclasses.replace(diagnoses.healthy(), causes=(Cause("x", "X", 0.9, 0.9, evidence),)))
    bullets = [line.strip(" -•") for line in lines if re.match(r" +[-•] (conv|before|after|\d more)", line)]
    rest = [f"{count - 4} more operators: {10 * (count - 4)}% of the time in kernels (in --json)"] if count > 5 else []
    assert bullets == ["before", *(f"conv{number}: 10%" for number in range(shown)), *rest, "after"]
