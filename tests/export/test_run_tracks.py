from pathlib import Path
from typing import Any

import pytest

from flatout.diagnosis import diagnose
from flatout.errors import UsageError
from flatout.export.named_causes import causes_by_kind
from flatout.export.run_tracks import run_timeline
from flatout.export.timeline import Timeline
from flatout.probe import events as kinds
from flatout.record import load_run
from tests.record.rich import rich_run
from tests.record.synthetic import RUN_START_NS, RunBuilder, ns

EPOCHS, BATCHES = 2, 3


def trained(folder: Path) -> Path:
    """Two epochs of three batches, made by two workers in turn that stay for both."""
    run = RunBuilder(folder)
    main = run.process()
    loader = main.loader(num_workers=2, persistent_workers=True)
    workers = [run.worker(main, id) for id in range(2)]
    for epoch in range(EPOCHS):
        begin = 1.0 + epoch
        main.at(begin).iterate(loader, workers=workers if not epoch else ())
        for batch in range(BATCHES):
            worker = workers[batch % 2]
            worker.at(begin + 0.2 * batch + 0.05).fetch(batch, cpu_s=0.1, put_s=0.02)
            main.at(begin + 0.2 * batch).step(
                loader, wait_s=0.17, backward_s=0.01, optimizer_s=0.01, worker=batch % 2, read_s=0.005
            )
        main.end_pass(loader)
    return run.write()


def slices(timeline: Timeline, process: int, name: str) -> list[dict[str, Any]]:
    words = dict(timeline.texts)
    found = []
    for track in timeline.processes[process].tracks:
        for part in track.slices:
            for row in range(len(part)):
                if words[int(part.name[row])] == name:
                    numbers = {key: int(values[row]) for key, values in part.numbers.items()}
                    texts = {key: words.get(int(values[row]), "") for key, values in part.words.items()}
                    flow = int(part.flow[row]) if len(part.flow) else 0
                    found.append(numbers | texts | {"start": int(part.start[row]), "flow": flow})
    return sorted(found, key=lambda each: each["start"])


def test_steps_lie_where_the_batches_were_taken(tmp_path: Path) -> None:
    timeline = run_timeline(load_run(trained(tmp_path)), {})
    steps = slices(timeline, 1, "step")
    assert [step["step"] for step in steps] == list(range(EPOCHS * BATCHES))
    assert [step["epoch"] for step in steps] == [0, 0, 0, 1, 1, 1]
    assert steps[0]["start"] == RUN_START_NS + ns(1.0) and steps[0]["waited_us"] == 170_000


def test_a_flow_leads_from_each_fetch_to_the_arrival_of_its_batch_also_in_a_later_epoch(tmp_path: Path) -> None:
    timeline = run_timeline(load_run(trained(tmp_path)), {})
    waits = slices(timeline, 1, "batch arrives")
    assert all(wait["flow"] for wait in waits) and len({wait["flow"] for wait in waits}) == len(waits)
    for name in ("fetch a batch", "hand over a batch"):
        made = sorted(slices(timeline, 2, name) + slices(timeline, 3, name), key=lambda each: each["start"])
        assert [each["flow"] for each in made] == [wait["flow"] for wait in waits]
        assert [each["batch"] for each in made] == [wait["batch"] for wait in waits]


def test_slices_say_which_line_and_which_cause(tmp_path: Path) -> None:
    timeline = run_timeline(load_run(trained(tmp_path)), {kinds.BATCH_WAIT: "too_few_workers"})
    (wait, *_) = slices(timeline, 1, "waiting for a batch")
    assert wait["cause"] == "too_few_workers" and wait["loader"] == "/home/me/train.py:10" and wait["worker"] == 0
    (read, *_) = slices(timeline, 1, "read from the device")
    assert read["line"] == "train.py:20 loss.item()"


def test_chosen_steps_keep_what_overlaps_them(tmp_path: Path) -> None:
    run = load_run(trained(tmp_path))
    timeline = run_timeline(run, {}, steps=(1, 2))
    assert [step["step"] for step in slices(timeline, 1, "step")] == [1, 2]
    assert len(slices(timeline, 1, "backward")) == 2
    with pytest.raises(UsageError, match=r"--steps 6:7: the run has 6 steps, counted from 0"):
        run_timeline(run, {}, steps=(6, 7))


def test_chosen_ranks_come_with_their_workers(tmp_path: Path) -> None:
    run = load_run(rich_run(tmp_path))
    timeline = run_timeline(run, {}, ranks={1})
    kept = {process.pid for process in timeline.processes[1:]}
    chosen = {process.pid for process in run.processes if process.rank == 1}
    assert kept == chosen | {process.pid for process in run.processes if process.ppid in chosen}
    assert kept and kept != {process.pid for process in run.processes}


def test_counters_show_the_machine_and_each_process(tmp_path: Path) -> None:
    timeline = run_timeline(load_run(rich_run(tmp_path)), {})
    names = {counter.name for counter in timeline.processes[0].counters}
    assert {"busy cores", "memory used", "/dev/shm used", "GPU 0 busy", "GPU 0 memory used"} <= names
    assert {"resident memory", "ready batches"} <= {counter.name for counter in timeline.processes[1].counters}


def test_time_of_a_kind_gets_the_largest_cause_that_concerns_it(tmp_path: Path) -> None:
    diagnosis = diagnose(load_run(rich_run(tmp_path)))
    found = causes_by_kind(diagnosis)
    assert set(found.values()) <= {cause.id for cause in diagnosis.causes} and found
