"""The live counters of a recording: without a descriptor each, and counted as the report counts."""

from __future__ import annotations

import io
import json
import os
import resource
from pathlib import Path

import pytest

from flatout.measure.ledger import ledger_of
from flatout.probe import events as kinds
from flatout.record import load_run
from flatout.runner import Bounds
from flatout.runner.live import Live, LiveReader, what_was_seen
from flatout.runner.progress import Progress
from flatout.runner.steps import StepCounter
from tests.record.synthetic import RUN_START_NS, ProcessBuilder, RunBuilder


def events_of(run: Path, pid: int = 100) -> Path:
    return next((run / "processes").glob(f"{pid}-*.events"))


def with_counters(path: Path, iterations: int, backwards: int) -> None:
    data = bytearray(path.read_bytes())
    kinds.LIVE.pack_into(data, kinds.LIVE_OFFSET, iterations, backwards, 0, 0, RUN_START_NS, RUN_START_NS + 1, 0, 0)
    path.write_bytes(data)


def counted(run: RunBuilder) -> tuple[int, int]:
    """Steps as counted live, the first one included, and as the report counts them, without it."""
    path = run.write()
    ledger = ledger_of(load_run(path))
    assert ledger is not None
    return StepCounter(events_of(path)).read(), ledger.steps.count


def gan(main: ProcessBuilder, loader: int) -> None:
    main.wait(loader, 0.01)
    for _ in range(3):
        main.spend(kinds.FORWARD, 0.01, main.text("Net"), 1, 1)
        main.spend(kinds.BACKWARD, 0.01)
    for _ in range(2):
        main.spend(kinds.OPTIMIZER, 0.01, main.text("Adam"))


def test_three_backward_passes_for_a_batch_are_one_step(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader()
    main.iterate(loader)
    for _ in range(20):
        gan(main, loader)
    live, reported = counted(run)
    assert live == 20 and reported in (19, 20)  # the first step ends with its first update


@pytest.mark.parametrize(("batches", "updates", "steps"), [(1, 40, 40), (1, 12, 1), (500, 40, 1), (None, 40, 1)])
def test_updates_with_the_one_batch_of_a_loader_are_steps(
    tmp_path: Path, batches: int | None, updates: int, steps: int
) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader(batches=batches)
    main.iterate(loader)
    main.wait(loader, 0.01)
    for _ in range(updates):
        main.spend(kinds.BACKWARD, 0.01)
        main.spend(kinds.OPTIMIZER, 0.01, main.text("Adam"))
    path = run.write()
    ledger = ledger_of(load_run(path))
    assert StepCounter(events_of(path)).read() == steps
    assert ledger is not None and ledger.steps.count in (steps - 1, steps)
    assert not any("in another thread" in note for note in ledger.notes)


def test_each_batch_of_an_accumulated_update_is_a_step(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader()
    main.iterate(loader)
    for batch in range(20):
        main.step(loader, wait_s=0.01, forward_s=0.01, backward_s=0.01, optimizer_s=0.01 if batch % 4 == 3 else None)
    live, reported = counted(run)
    assert live == 20 and reported in (16, 19)


def test_batches_of_a_validation_are_no_steps(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    loader, held_out = main.loader(), main.loader(site="/home/me/train.py:90")
    for _ in range(3):
        main.iterate(loader)
        for _ in range(5):
            main.step(loader, wait_s=0.01, forward_s=0.01, backward_s=0.01, optimizer_s=0.01)
        main.iterate(held_out)
        for _ in range(8):
            main.wait(held_out, 0.01)
    assert counted(run) == (15, 14)


@pytest.mark.parametrize(("batches", "passes"), [(30, 3), (1, 4)])
def test_updates_between_validations_by_a_loader_are_steps(tmp_path: Path, batches: int, passes: int) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    held_out = main.loader(site="/home/me/train.py:90", batches=batches)
    for _ in range(passes):
        for _ in range(25):
            main.spend(kinds.FORWARD, 0.01, main.text("Net"), 1, 1)
            main.spend(kinds.BACKWARD, 0.01)
            main.spend(kinds.OPTIMIZER, 0.01, main.text("Adam"))
        main.iterate(held_out)
        for _ in range(batches):
            main.wait(held_out, 0.01)
    assert counted(run) == (25 * passes, 25 * passes - 1)


def test_without_a_loader_updates_are_steps(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(10):
        for _ in range(4):
            main.spend(kinds.BACKWARD, 0.01)
        main.spend(kinds.OPTIMIZER, 0.01, main.text("clip_grad_norm_"))
        main.spend(kinds.OPTIMIZER, 0.01, main.text("SGD"))
    assert counted(run) == (10, 9)


def test_steps_are_counted_while_the_file_grows(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader()
    main.iterate(loader)
    for _ in range(30):
        gan(main, loader)
    path = events_of(run.write())
    whole = path.read_bytes()
    seen = []
    counter = StepCounter(path)
    for size in range(kinds.HEADER_BYTES, len(whole) + 1, 7 * kinds.EVENT.size):
        path.write_bytes(whole[:size] + bytes(kinds.EVENT.size))
        seen.append(counter.read())
    path.write_bytes(whole)
    assert seen == sorted(seen) and seen[0] == 0 and counter.read() == 30


def test_more_processes_than_descriptors_are_all_counted(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader()
    main.iterate(loader)
    for _ in range(12):
        main.step(loader, wait_s=0.01, forward_s=0.01, backward_s=0.01, optimizer_s=0.01)
    for number in range(200):
        run.worker(main, number)
    path = run.write()
    with_counters(events_of(path), 12, 12)
    reader = LiveReader(path)
    before = len(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 8, hard))
    try:
        lives = [reader.read() for _ in range(5)]
        loaded = load_run(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert {live.with_torch for live in lives} == {201}
    assert lives[-1].steps == 12 and lives[-1].training_pid == 100
    assert len(loaded.processes) == 201 and loaded.problems == ()
    assert len(os.listdir("/proc/self/fd")) <= before  # the collector may close others meanwhile


def test_a_file_that_cannot_be_opened_now_is_read_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader()
    main.iterate(loader)
    main.step(loader, wait_s=0.01, forward_s=0.01, backward_s=0.01, optimizer_s=0.01)
    path = run.write()
    with_counters(events_of(path), 1, 1)
    reader = LiveReader(path)

    def full(*_: object, **__: object) -> int:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("os.open", full)
        assert reader.read().training_pid is None
    assert reader.read().training_pid == 100


@pytest.mark.parametrize("accumulated", [1, 3])
def test_the_live_wait_is_that_of_the_report(tmp_path: Path, accumulated: int) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    loader, held_out = main.loader(), main.loader(site="/home/me/train.py:90")
    main.iterate(loader)
    # The first batch takes long; so do the first backward pass and those of a validation.
    main.wait(loader, 30.0)
    main.spend(kinds.BACKWARD, 5.0)
    main.spend(kinds.OPTIMIZER, 1.0, main.text("SGD"))
    for batch in range(12):
        last = batch % accumulated == accumulated - 1
        main.step(loader, wait_s=0.5, forward_s=0.25, backward_s=0.25, optimizer_s=0.25 if last else None)
    main.iterate(held_out)
    for _ in range(8):
        main.wait(held_out, 3.0)
    main.wait(loader, 7.0)  # the step of this one is not made yet
    path = run.write()
    ledger = ledger_of(load_run(path))
    assert ledger is not None
    counter = StepCounter(events_of(path))
    counter.read()
    assert counter.window_s == pytest.approx(ledger.window_s)
    assert counter.wait_s == pytest.approx(12 * 0.5) == pytest.approx(ledger.share("batch_wait") * ledger.window_s)


def test_the_line_of_progress_shows_the_wait_of_that_window() -> None:
    stream = io.StringIO()
    progress = Progress(Bounds(), quiet=False, stream=stream)
    live = Live(batches=9, steps=9, wait_s=4.0, window_s=8.0, first_step_ns=1, last_step_ns=20 * 10**9)
    for ahead_s in (0.0, 6.0, 60.0):
        progress._next_s -= ahead_s
        progress.look(live)
    assert "waiting for batches 50% of the time so far" in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) <= 80


def test_a_failure_of_the_probe_is_told_once_while_the_training_goes_on(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    run.process().wait(1, 0.01)
    path = run.write()
    data = bytearray(events_of(path).read_bytes())
    kinds.LIVE.pack_into(data, kinds.LIVE_OFFSET, *(0,) * 7, kinds.FAILED)
    events_of(path).write_bytes(data)
    stream = io.StringIO()
    progress, reader = Progress(Bounds(), quiet=False, stream=stream), LiveReader(path)
    for _ in range(3):
        progress.look(reader.read())
    assert stream.getvalue() == "flatout: the probe failed in process 100: nothing more is recorded there\n"
    assert not reader.read().traced
    assert what_was_seen(path, reader.read()).endswith("and the probe failed in process 100")
    described = next(path.glob("processes/100-*.json"))
    info = json.loads(described.read_text("utf-8"))
    described.write_text(json.dumps(info | {"fault": "Traceback:\n  …\nKeyError: 'values'\n"}), "utf-8")
    said = what_was_seen(path, reader.read())
    assert said.endswith("process 100: KeyError: 'values' (a fault of flatout's, please report it)")
