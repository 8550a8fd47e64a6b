"""Input made without a DataLoader, divided by what it spends its time on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flatout.diagnose.ranking import judge
from flatout.diagnose.verdict import verdict
from flatout.measure.build import build_view
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.own_input import awaits_maker, is_input
from flatout.predict.context import Context
from flatout.probe import events as kinds
from flatout.record import load_run
from flatout.remedies import propose
from flatout.results import Remedy
from tests.diagnose.ledger_runs import check_sums
from tests.record.synthetic import RUN_START_NS, ProcessBuilder, RunBuilder, ns

PYTHON = "/usr/lib/python3.11"
SITE = "/venv/lib/python3.11/site-packages"
MODULE = ["/home/me/train.py", 60, "<module>", "main()", True]
LOOP = ["/home/me/train.py", 50, "main", "x = some(8)", True]
TAKES = ["/home/me/train.py", 51, "main", "x = batches.get()", True]
PICTURE = ["/home/me/train.py", 20, "load_picture", "image = Image.open(path)", True]
WAITS = [f"{PYTHON}/threading.py", 320, "Condition.wait", "waiter.acquire()", False]
DECODES = [[f"{SITE}/PIL/ImageFile.py", 1, "ImageFile.load", "", False], PICTURE, LOOP, MODULE]
RESIZES = [["/home/me/train.py", 21, "load_picture", "small = shrink(image)", True], LOOP, MODULE]
READS = [["/home/me/train.py", 12, "fetch", "return file.read()", True], LOOP, MODULE]
AWAITS = [WAITS, [f"{PYTHON}/queue.py", 171, "Queue.get", "self.not_empty.wait()", False], TAKES, MODULE]
BACKWARD = [[f"{SITE}/torch/_tensor.py", 1, "Tensor.backward", "", False], LOOP, MODULE]
PRODUCES = [*DECODES[:2], ["/home/me/train.py", 33, "produce", "q.put(some(8))", True]]
FULL = [WAITS, [f"{PYTHON}/queue.py", 140, "Queue.put", "", False], PRODUCES[2]]


def meet(process: ProcessBuilder, time_s: float, frames: Any, state: str = "R", thread: int = 0) -> None:
    """One stack sample."""
    stack = process.name("stack", frames=frames)
    process.emit(kinds.STACK, time_s, time_s, stack, ns(0.05), ord(state), thread)


def recorded(
    folder: Path, gap: list[tuple[Any, str]], *, thread: Any = None, queued: float = 0.0, cores: float = 4
) -> MeasuredRun:
    """Ten steps of 0.6 s of input, met by these samples in turn, and 0.4 s of computing."""
    run = RunBuilder(folder)
    run.machine["cores"] = {"usable": cores, "online": int(cores)}
    main = run.process()
    for step in range(11):
        for place, (frames, state) in enumerate(gap):
            meet(main, main.now_s + (place + 0.5) * 0.6 / len(gap), frames, state)
        if thread is not None:
            for place in range(3):
                meet(main, main.now_s + (place + 0.5) * 0.2, thread, "R", 1)
            meet(main, main.now_s + 0.4, FULL, "S", 1)
        main.pause(0.6)
        meet(main, main.now_s + 0.3, BACKWARD)
        main.step(forward_s=0.2, backward_s=0.15, optimizer_s=0.05)
        entry = {"pid": main.pid, "rss": 1, "cpu_s": main.now_s * 0.8, "runqueue_s": queued * main.now_s}
        sample = {"t": RUN_START_NS + ns(main.now_s), "cpu": [0.5] * int(cores), "processes": [entry]}
        run.system.append(sample)
        assert step < 11
    view = build_view(load_run(run.write()))
    assert view is not None
    check_sums(view.ledger)
    return view


def say(view: MeasuredRun) -> str:
    return verdict(Context.of(view), judge(Context.of(view))[0])


def offered(view: MeasuredRun) -> dict[str, Remedy]:
    context = Context.of(view)
    return {remedy.id: remedy for remedy in propose(context, judge(context)[0])[0]}


MIXED = [(DECODES, "R"), (DECODES, "R"), (RESIZES, "R"), (READS, "S")]


def test_input_is_divided_by_the_state_of_the_thread_and_by_function(tmp_path: Path) -> None:
    view = recorded(tmp_path, MIXED)
    found = {id: view.ledger.share(f"batch_wait.{id}") for id in ("fetch_cpu", "fetch_blocked", "fetch_cpu.decode")}
    assert found == {
        "fetch_cpu": pytest.approx(0.45, abs=0.01),
        "fetch_blocked": pytest.approx(0.15, abs=0.01),
        "fetch_cpu.decode": pytest.approx(0.30, abs=0.01),
    }
    decode = view.ledger.account("batch_wait.fetch_cpu.decode")
    assert decode is not None and [line.line for line in decode.lines] == [20]
    assert [line.line for line in view.lines("batch_wait")] == [20, 21, 12]


def test_the_verdict_names_the_work_and_the_users_function(tmp_path: Path) -> None:
    assert say(recorded(tmp_path, MIXED)) == (
        "The training makes its own input 60% of the time: decoding files 30% (load_picture, train.py:20)."
    )


def test_waiting_for_a_core_is_a_part_of_the_input_and_no_function(tmp_path: Path) -> None:
    view = recorded(tmp_path, [(DECODES, "R")], queued=0.6)
    # The thread is ready or on a core all the time; 60% of it in the queue, as far as the kernel says.
    assert view.ledger.share("batch_wait.fetch_runqueue") == pytest.approx(0.36, abs=0.01)
    assert say(view).endswith("decoding files 60% (load_picture, train.py:20), 60% of that without a core.")


def test_other_lines_of_a_function_that_makes_input_are_input(tmp_path: Path) -> None:
    alone = recorded(tmp_path / "alone", [(RESIZES, "R")])
    assert alone.ledger.share("batch_wait") == 0.0
    beside = recorded(tmp_path / "beside", [(DECODES, "R"), (RESIZES, "R")])
    assert beside.ledger.share("batch_wait") == pytest.approx(0.6, abs=0.01)


def test_the_loop_itself_makes_no_input(tmp_path: Path) -> None:
    """A loop that decodes on one line does not make all of its lines input."""
    decodes = [
        [f"{SITE}/PIL/ImageFile.py", 1, "ImageFile.load", "", False],
        [*LOOP[:3], "i = Image.open(p)", True],
        MODULE,
    ]
    metric = [["/home/me/train.py", 55, "main", "total = sum(history)", True], MODULE]
    view = recorded(tmp_path, [(decodes, "R"), (metric, "R")])
    assert view.ledger.share("batch_wait") == pytest.approx(0.3, abs=0.01)
    assert view.ledger.share("host_other") == pytest.approx(0.3, abs=0.01)


def test_a_thread_that_is_waited_for_is_seen_at_its_work(tmp_path: Path) -> None:
    view = recorded(tmp_path, [(AWAITS, "S")], thread=PRODUCES)
    producer = view.ledger.account("batch_wait.producer")
    assert producer is not None and producer.share == pytest.approx(0.6, abs=0.01)
    assert [line.line for line in producer.lines] == [51]
    # Its wait for a place in the queue is no work.
    assert [(child.id, [line.line for line in child.lines]) for child in producer.children] == [
        ("batch_wait.producer.decode", [20])
    ]
    assert say(view) == (
        "The training waits 60% of the time for input that its own threads make: "
        "decoding files 60% (load_picture, train.py:20)."
    )


def test_a_process_that_is_waited_for_is_named_by_the_line_that_waits(tmp_path: Path) -> None:
    pool = [WAITS, [f"{PYTHON}/multiprocessing/pool.py", 861, "IMapIterator.next", "", False], TAKES, MODULE]
    assert say(recorded(tmp_path, [(pool, "S")])) == (
        "The training waits 60% of the time for input that its own threads or processes make (main, train.py:51)."
    )


@pytest.mark.parametrize(
    ("path", "function", "source", "input"),
    [
        ("queue.py", "Queue.get", "x, y = self.incoming.get()", True),
        ("multiprocessing/queues.py", "Queue.get", "item = q.get(timeout=5)", True),
        ("multiprocessing/pool.py", "IMapIterator.next", "for item in pool.imap(make, seeds):", True),
        ("multiprocessing/connection.py", "Connection.recv", "item = pipe.recv()", True),
        ("concurrent/futures/_base.py", "Future.result", "x = ahead.result()", True),
        ("concurrent/futures/_base.py", "Future.result", "saving.result()  # save the checkpoint", False),
        ("concurrent/futures/thread.py", "ThreadPoolExecutor.shutdown", "pool.shutdown()", False),
        ("threading.py", "Thread.join", "writer.join()", False),
        ("queue.py", "Queue.put", "log_queue.put(loss)", False),
    ],
)
def test_what_is_waited_for_is_input_unless_it_is_writing(path: str, function: str, source: str, input: bool) -> None:
    frames = [WAITS, [f"{PYTHON}/{path}", 1, function, "", False], ["/home/me/train.py", 40, "main", source, True]]
    assert awaits_maker(frames) == is_input(frames) == input


def test_workers_are_predicted_from_the_input_the_step_and_the_cores(tmp_path: Path) -> None:
    """0.6 s of input beside 0.4 s: two workers hide all of it on 4 cores; one core has nothing to give."""
    many = offered(recorded(tmp_path / "many", MIXED))["batches_ahead"]
    assert many.gain.predicted == pytest.approx(1.0 / 0.4, rel=0.02)
    assert "in 2 workers" in many.title and "num_workers=2" in many.how
    blocked = offered(recorded(tmp_path / "blocked", [(READS, "S")], cores=1))["batches_ahead"]
    assert blocked.gain.predicted == pytest.approx(1.0 / 0.4, rel=0.02)
    assert "batches_ahead" not in offered(recorded(tmp_path / "one", [(DECODES, "R")], cores=1))


def test_the_work_that_takes_longest_has_a_remedy(tmp_path: Path) -> None:
    cheaper = offered(recorded(tmp_path, MIXED))["cheaper_input"]
    assert cheaper.title.startswith("decode at the size that is needed") and "train.py:20" in cheaper.title
    assert cheaper.gain.predicted == pytest.approx(1 / (1 - 0.15), rel=0.02)
    assert cheaper.semantic_class == "data"
