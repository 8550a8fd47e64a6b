"""Damaged and hostile records: they are read in part, or refused in one line; never a traceback, never a hang."""

from __future__ import annotations

import io
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from flatout.compare.speed import speed_of
from flatout.diagnosis import diagnose
from flatout.errors import FlatoutError
from flatout.probe import events as kinds
from flatout.probe.events import HEADER_BYTES
from flatout.record import list_runs, load_run, of_kinds
from flatout.record.events import read_events
from flatout.report.json_report import render_json
from flatout.report.markdown import render_markdown
from flatout.report.runs import table
from flatout.report.terminal import print_report
from flatout.trials.losses import losses_of
from tests.record.damage import ODD, copy, damage, nested
from tests.record.rich import rich_run

# Only against reading that never ends; a record of this size is read in milliseconds.
HANGS_AFTER_S = 60


@contextmanager
def never_hanging(what: str) -> Iterator[None]:
    def hung(*_: object) -> None:
        raise AssertionError(f"reading never ends: {what}")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(HANGS_AFTER_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def read_in_every_way(run: Path) -> str:
    """What a person sees of a run, by every command that reads it; refusals in one line included."""
    said = []
    said += table(list_runs(run.parent), now=datetime.now(UTC), width=80)
    try:
        loaded = load_run(run)
        diagnosis = diagnose(loaded)
        file = io.StringIO()
        print_report(diagnosis, file)
        said += [file.getvalue(), render_markdown(diagnosis), render_json(diagnosis)]
        losses_of(loaded)
        speed_of(loaded, settle=True)
    except FlatoutError as error:
        said.append(str(error))
        assert "\n" not in str(error)
    return "\n".join(said)


def survives(whole: Path, to: Path, seeds: range, most: int = 3) -> None:
    for seed in seeds:
        draw = random.Random(seed)
        run = copy(whole, to / whole.name)
        done = [damage(run, draw) for _ in range(draw.randint(1, most))]
        what = f"seed {seed}: {'; '.join(done)}"
        try:
            with never_hanging(what):
                read_in_every_way(run)
        except Exception as error:
            error.add_note(what)
            raise


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predictions from few draws: their number changes nothing of what is read."""
    monkeypatch.setattr("flatout.predict.rate_model.RESAMPLES", 3)
    monkeypatch.setattr("flatout.predict.whatif.STEPS", 40)
    monkeypatch.setattr("flatout.predict.whatif.SEEDS", 1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rich_run(tmp_path_factory.mktemp("whole"))


def test_the_whole_record_is_read_without_a_problem(whole: Path) -> None:
    run = load_run(whole)
    assert run.problems == (
        "left in /dev/shm: psm_1",
        "wandb could not be timed (gone): what depends on it is missing",
    )
    diagnosis = diagnose(run)
    assert diagnosis.ledger is not None and diagnosis.causes


@pytest.mark.slow
def test_a_damaged_record_is_read_in_part_or_refused_in_one_line(whole: Path, tmp_path: Path, few_draws: None) -> None:
    survives(whole, tmp_path, range(250))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_thousand_damaged_records_are_read_in_part_or_refused(whole: Path, tmp_path: Path, few_draws: None) -> None:
    survives(whole, tmp_path, range(1000, 1240), most=16)  # 8.5 of them each


def a_fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def a_device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def a_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def a_loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def deeply_nested(path: Path) -> None:
    path.write_text('{"deep": ' + nested(100_000) + "}\n")


def huge(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(100 << 20)


@pytest.mark.parametrize("instead", [a_fifo, a_device, a_folder, a_loop, deeply_nested, huge])
@pytest.mark.parametrize("name", ["run.json", "machine.json", "system.jsonl", ".json", ".names", ".events"])
def test_what_is_no_file_of_a_record_is_a_problem_and_the_rest_is_read(
    whole: Path, tmp_path: Path, few_draws: None, name: str, instead: Callable[[Path], None]
) -> None:
    run = copy(whole, tmp_path / "rich")
    path = run / name if name[0] != "." else min((run / "processes").glob(f"*{name}"))
    instead(path)
    with never_hanging(f"{name} {instead.__name__}"):
        said = read_in_every_way(run)
    # A damaged machine sample is only skipped, and the space that is reserved for events may be large.
    silent = (name, instead) in ((".events", huge), ("system.jsonl", deeply_nested))
    if not silent:
        assert f"{path.name} cannot be read" in said or f"{path.name}: " in said


@pytest.mark.parametrize("name", ["system.jsonl", ".names"])
def test_a_file_that_ends_in_a_terabyte_of_nothing_is_read_up_to_there(
    whole: Path, tmp_path: Path, few_draws: None, name: str
) -> None:
    run = copy(whole, tmp_path / "rich")
    path = run / name if name[0] != "." else min((run / "processes").glob(f"*{name}"))
    os.truncate(path, 1 << 40)
    with never_hanging(name):
        assert f"{path.name}: line" in read_in_every_way(run)
        damaged, sound = load_run(run), load_run(whole)
        assert list(damaged.system()) == list(sound.system())
        assert [len(p.names.entries) for p in damaged.processes] == [len(p.names.entries) for p in sound.processes]
    assert any("more than 8 MiB of NUL bytes" in problem for problem in damaged.problems)


@pytest.mark.parametrize("stem", ["²-³", "1-", "-", "1-2-3", "9" * 100 + "-1", "1-" + "9" * 100, "x", "\x1b]0;x\x07"])
def test_a_process_file_of_another_name_is_a_problem_and_left_out(whole: Path, tmp_path: Path, stem: str) -> None:
    run = copy(whole, tmp_path / "rich")
    (run / "processes" / f"{stem}.json").write_text("{}")
    loaded = load_run(run)
    assert len(loaded.processes) == 6
    assert [problem for problem in loaded.problems if "not named pid-start" in problem]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20])
def test_one_bad_run_does_not_hide_the_others(whole: Path, tmp_path: Path, odd: object) -> None:
    copy(whole, tmp_path / "good")
    bad = copy(whole, tmp_path / "bad")
    for field in json.loads((whole / "run.json").read_text()):
        info = json.loads((whole / "run.json").read_text())
        (bad / "run.json").write_text(json.dumps({**info, field: odd}))
        runs = list_runs(tmp_path)
        assert {run.path.name for run in runs} == {"good", "bad"}
        assert len(table(runs, now=datetime.now(UTC), width=80)) == 3


def test_a_field_of_a_wrong_type_is_named_and_costs_no_other(whole: Path, tmp_path: Path) -> None:
    run = copy(whole, tmp_path / "rich")
    path = min((run / "processes").glob("*.json"))
    info = json.loads(path.read_text())
    path.write_text(json.dumps({**info, "worker": 10**30, "rank": "first"}))
    loaded = load_run(run)
    assert [problem for problem in loaded.problems if path.name in problem and "rank, worker" in problem]
    assert (loaded.processes[0].worker, loaded.processes[0].rank) == (None, None)
    assert loaded.processes[0].info["torch"] == "2.15.0"


def test_events_with_impossible_times_are_left_out_and_counted(whole: Path, tmp_path: Path) -> None:
    run = copy(whole, tmp_path / "rich")
    path = min((run / "processes").glob("*.events"))
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES + 8 : HEADER_BYTES + 16] = (1 << 61).to_bytes(8, "little")
    path.write_bytes(data)
    before, after = (load_run(folder).processes[0].events for folder in (whole, run))
    assert len(after) == len(before) - 1
    assert any("1 events with impossible values" in problem for problem in load_run(run).problems)


def test_a_loader_with_a_queue_of_any_length_is_simulated(whole: Path, tmp_path: Path, few_draws: None) -> None:
    run = copy(whole, tmp_path / "rich")
    path = min((run / "processes").glob("*.names"))
    path.write_text(path.read_text().replace('"prefetch_factor": 2', f'"prefetch_factor": {1 << 61}'))
    with never_hanging("a long queue"):
        read_in_every_way(run)


def test_every_field_that_is_recorded_is_known_to_the_reader(whole: Path) -> None:
    """What the tables of fields leave out would be lost without a word."""
    for path in (whole / "processes").glob("*.json"):
        process = next(one for one in load_run(whole).processes if one.key == path.stem)
        assert set(json.loads(path.read_text())) <= set(process.info)
    for path in (whole / "processes").glob("*.names"):
        names = next(one for one in load_run(whole).processes if one.key == path.stem).names
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            given = {name for name, value in entry.items() if value is not None} - {"number"}
            assert given <= set(names.entries[entry["id"]])


def test_an_amount_that_cannot_be_is_left_out_with_its_event(whole: Path, tmp_path: Path) -> None:
    run = copy(whole, tmp_path / "rich")
    path, columns = next(
        (path, events)
        for path in sorted((run / "processes").glob("*.events"))
        if len(events := of_kinds(read_events(path).events, kinds.FETCH_SCHED))
    )
    wrong = int(np.flatnonzero(read_events(path).events["kind"] == kinds.FETCH_SCHED)[0])
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + wrong * kinds.EVENT.size + 24)
        file.write((-(10**15)).to_bytes(8, "little", signed=True))
    left = of_kinds(read_events(path).events, kinds.FETCH_SCHED)
    assert len(left) == len(columns) - 1 and left["a"].min() >= 0
    assert any("1 events with impossible values left out" in problem for problem in load_run(run).problems)


def test_damaged_machine_samples_are_named(whole: Path, tmp_path: Path) -> None:
    run = copy(whole, tmp_path / "rich")
    path = run / "system.jsonl"
    sample = json.loads(path.read_text().splitlines()[0])
    path.write_text(json.dumps({**sample, "cpu_usable": 10**400}) + "\n{\n")
    loaded = load_run(run)
    assert "cpu_usable" not in next(loaded.system())
    assert [problem for problem in loaded.problems if problem.startswith("system.jsonl")] == [
        "system.jsonl: 1 damaged line left out",
        "system.jsonl: 1 damaged value left out (cpu_usable)",
    ]
