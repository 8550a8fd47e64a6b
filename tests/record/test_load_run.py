import json
import os
import struct

import numpy as np
import pytest

from flatout.errors import RecordError
from flatout.probe import events as kinds
from flatout.record import EVENT_DTYPE, load_run
from tests.record.synthetic import RUN_START_NS, RunBuilder


def one_process(tmp_path, steps=3):
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(steps):
        main.step(forward_s=0.1, backward_s=0.2, optimizer_s=0.1)
    return run.write()


def file_of(path, suffix):
    return next((path / "processes").glob(f"*{suffix}"))


def test_the_numpy_layout_is_that_of_the_probe():
    assert EVENT_DTYPE.itemsize == kinds.EVENT.size
    packed = kinds.EVENT.pack(1, 2, 3, 4, 5, 6, 7)
    assert np.frombuffer(packed, EVENT_DTYPE)[0].tolist() == (1, 2, 3, 4, 5, 6, 7)


def test_a_whole_run_loads_without_problems(tmp_path):
    run = load_run(one_process(tmp_path))
    assert run.problems == ()
    assert run.id == "synthetic" and run.command == ("python", "train.py")
    (process,) = run.processes
    assert process.pid == 100 and process.start_ns == RUN_START_NS
    assert process.events["kind"].tolist() == [6, 7, 8] * 3
    assert process.names.text(int(process.events["arg"][0])) == "Net"


def test_reading_stops_at_the_first_unwritten_event(tmp_path):
    path = one_process(tmp_path)
    file = file_of(path, ".events")
    data = bytearray(file.read_bytes())
    struct.pack_into("<H", data, kinds.HEADER_BYTES + 4 * kinds.EVENT.size, 0)
    file.write_bytes(data)
    assert len(load_run(path).processes[0].events) == 4


def test_the_end_is_found_beyond_the_first_scan(tmp_path, monkeypatch):
    monkeypatch.setattr("flatout.record.events.SCAN_EVENTS", 4)
    assert len(load_run(one_process(tmp_path)).processes[0].events) == 9


def test_a_preallocated_file_of_odd_length_is_no_problem(tmp_path):
    path = one_process(tmp_path)
    file = file_of(path, ".events")
    os.truncate(file, file.stat().st_size + 17)
    assert load_run(path).problems == ()


def test_an_events_file_cut_inside_an_event_counts_up_to_there(tmp_path):
    path = one_process(tmp_path)
    os.truncate(file_of(path, ".events"), kinds.HEADER_BYTES + 5 * kinds.EVENT.size + 11)
    run = load_run(path)
    assert len(run.processes[0].events) == 5
    assert any("cut inside its last event" in problem for problem in run.problems)


@pytest.mark.parametrize("size", [0, 10, 300])
def test_an_events_file_cut_inside_its_header_is_left_out(tmp_path, size):
    path = one_process(tmp_path)
    os.truncate(file_of(path, ".events"), size)
    run = load_run(path)
    assert len(run.processes[0].events) == 0
    assert any(f"header is cut off after {size} bytes" in problem for problem in run.problems)


def test_foreign_bytes_are_not_read_as_events(tmp_path):
    path = one_process(tmp_path)
    file = file_of(path, ".events")
    file.write_bytes(b"NOTOURS!" + file.read_bytes()[8:])
    run = load_run(path)
    assert len(run.processes[0].events) == 0
    assert any("NOTOURS!" in problem for problem in run.problems)


def test_lost_events_are_reported(tmp_path):
    path = one_process(tmp_path)
    file = file_of(path, ".events")
    data = bytearray(file.read_bytes())
    kinds.LIVE.pack_into(data, kinds.LIVE_OFFSET, 0, 0, 0, 0, 0, 0, 12, 0)
    file.write_bytes(data)
    assert any("12 events could not be written" in problem for problem in load_run(path).problems)


def test_a_name_line_cut_in_the_middle_costs_only_that_name(tmp_path):
    path = one_process(tmp_path)
    file = file_of(path, ".names")
    file.write_bytes(file.read_bytes() + b'{"id": 99, "type": "te\xc3')
    run = load_run(path)
    assert run.processes[0].names.text(1) == "Net"
    assert run.processes[0].names.get(99, "text") == {}
    assert any("1 damaged line" in problem for problem in run.problems)


def test_later_name_lines_replace_fields_of_earlier_ones(tmp_path):
    path = one_process(tmp_path)
    file = file_of(path, ".names")
    lines = [{"id": 50, "type": "loader", "num_workers": 2}, {"id": 50, "batch_bytes": 77}]
    file.write_text(file.read_text() + "".join(json.dumps(line) + "\n" for line in lines))
    entry = load_run(path).processes[0].names.get(50, "loader")
    assert (entry["num_workers"], entry["batch_bytes"]) == (2, 77)


def test_events_without_their_json_file_still_count(tmp_path):
    path = one_process(tmp_path)
    file_of(path, ".json").unlink()
    run = load_run(path)
    assert run.processes[0].pid == 100 and len(run.processes[0].events) == 9
    assert any(problem.endswith(".json is missing") for problem in run.problems)


def test_a_missing_run_json_gives_the_rest(tmp_path):
    path = one_process(tmp_path)
    (path / "run.json").unlink()
    run = load_run(path)
    assert "run.json is missing" in run.problems
    assert run.end_ns == RUN_START_NS + 1_200_000_000


def test_a_run_that_was_not_closed_says_so(tmp_path):
    run = RunBuilder(tmp_path)
    run.process().step(forward_s=1.0)
    assert any("not closed" in problem for problem in load_run(run.write(end_ns=None)).problems)


@pytest.mark.parametrize(("number", "fix"), [(2, "upgrade flatout"), (0, "record the run again"), (None, "again")])
def test_another_format_of_the_run_is_refused_with_the_fix(tmp_path, number, fix):
    run = RunBuilder(tmp_path)
    run.process()
    path = run.write(format=number)
    with pytest.raises(RecordError, match=rf"record format {number}.*reads format 1; .*{fix}"):
        load_run(path)


def test_another_format_of_the_events_is_refused(tmp_path):
    path = one_process(tmp_path)
    file = file_of(path, ".events")
    data = bytearray(file.read_bytes())
    struct.pack_into("<I", data, 8, 9)
    file.write_bytes(data)
    with pytest.raises(RecordError, match="record format 9"):
        load_run(path)


def test_a_folder_that_does_not_exist_is_one_line(tmp_path):
    with pytest.raises(RecordError, match=r"^no run at .*nowhere: list the recorded runs with `flatout runs`$"):
        load_run(tmp_path / "nowhere")


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(RecordError, match="is not a run folder"):
        load_run(tmp_path)


def test_system_samples_skip_damaged_lines(tmp_path):
    path = one_process(tmp_path)
    (path / "system.jsonl").write_text('{"t": 1}\n{"t": 2, "cp\n[3]\n{"t": 4}\n')
    assert [sample["t"] for sample in load_run(path).system()] == [1, 4]


def test_names_that_are_missing_are_a_problem_only_where_events_refer_to_some(tmp_path):
    run = RunBuilder(tmp_path / "run")
    main = run.process()
    main.spend(kinds.FORWARD, 1.0, arg=main.name("text", text="x"))
    run.worker(main, 0, startup_s=0.1)  # it ended before there was anything to name
    folder = run.write()
    for path in folder.glob("processes/*.names"):
        path.unlink()
    assert load_run(folder).problems == (
        f"processes/100-{main.start_ns}.names is missing: what the events refer to has no names",
    )
