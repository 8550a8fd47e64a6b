import numpy as np
import pytest

from flatout.diagnose.causes.host import epoch_start
from flatout.diagnose.causes.worker_restart import worker_restart
from flatout.measure.build import build_view
from flatout.measure.ledger import ledger_of
from flatout.measure.loader import build_loading
from flatout.measure.training import find_training
from flatout.predict.context import Context
from flatout.probe import events as kinds
from flatout.record import load_run
from tests.diagnose.ledger_runs import check_sums
from tests.record.synthetic import RunBuilder


def read(run, **info):
    loaded = load_run(run.write(**info))
    ledger = ledger_of(loaded)
    check_sums(ledger)
    return ledger, build_loading(loaded, find_training(loaded))


def waits(ledger):
    wait = ledger.account("batch_wait")
    return {child.id.removeprefix("batch_wait."): pytest.approx(child.seconds) for child in wait.children}


def starved(tmp_path, known=True, written=True, batches=4, **fetch):
    """One worker that fetches 1 s a batch; training computes for 0.2 s and waits for the rest."""
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader(num_workers=1, prefetch_factor=2, start_method="fork", in_order=known)
    worker = run.worker(main, 0, startup_s=0.5)
    main.iterate(loader, workers=[worker])
    for batch in range(batches):
        worker.fetch(batch, put_s=0.02, **fetch)
        worker.idle(0.08)
        arrival = worker.now_s - 0.05  # 0.05 s after the fetch: put, pickling, receiving
        main.step(loader, wait_s=arrival - main.now_s, forward_s=0.1, backward_s=0.1, worker=0 if known else -1)
    if not written:
        run.processes.remove(worker)
    return run, main, worker


def test_a_wait_is_divided_by_the_fetch_it_waited_for(tmp_path):
    run, _, _ = starved(tmp_path, cpu_s=0.4, runqueue_s=0.1, blocked_s=0.5, collate_s=0.1)
    ledger, loading = read(run)
    # Of each 0.9 s of waiting the last 0.05 s come after the fetch, 0.1 s are its collate, and 0.75 s are the rest
    # of it. That rest takes 0.9 s in all: 0.5 s blocked and 0.4 s running (0.5 s less the collate), of which
    # 4/5 on a core, as for the whole fetch.
    assert waits(ledger) == {
        "fetch_cpu": 3 * 0.75 * 0.32 / 0.9,
        "fetch_runqueue": 3 * 0.75 * 0.08 / 0.9,
        "fetch_blocked": 3 * 0.75 * 0.5 / 0.9,
        "collate": 3 * 0.1,
        "ipc": 3 * 0.05,
    }
    assert loading.fetch.wall_s == pytest.approx([1.0] * 3)
    assert loading.fetch.cpu_s == pytest.approx([0.4] * 3)
    assert loading.fetch.blocked_s == pytest.approx([0.5] * 3)
    assert loading.settings.num_workers == 1 and loading.delivery.batches == 3 and loading.delivery.samples == 12
    assert loading.delivery.wait_s == pytest.approx([0.9] * 3)
    assert len(loading.fetch.item_s) == 12


def test_an_unknown_worker_is_averaged_over_all(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader(num_workers=2, in_order=False)
    busy, idle = run.worker(main, 0), run.worker(main, 1)
    main.iterate(loader, workers=[busy, idle])
    for _ in range(5):
        main.step(loader, wait_s=1.0, forward_s=0.5, backward_s=0.5)
    for batch in range(5):
        busy.fetch(batch, cpu_s=2.0)
    idle.idle(10.0)
    ledger, _ = read(run)
    assert waits(ledger) == {"fetch_cpu": 2.0, "idle": 2.0}


def test_without_scheduler_counters_the_fetch_stays_whole_and_says_why(tmp_path):
    run, _, _ = starved(tmp_path, blocked_s=1.0, sched=False)
    ledger, loading = read(run)
    fetch = ledger.account("batch_wait.fetch")
    assert fetch.seconds > 2.0 and "not measured, because" in fetch.note
    assert ledger.account("batch_wait.fetch_blocked") is None
    assert loading.fetch.cpu_s is None and loading.fetch.blocked_s is None
    assert any("run-queue" in sentence for sentence in loading.not_measured)


def test_a_worker_without_a_record_leaves_the_wait_undivided(tmp_path):
    run, _, _ = starved(tmp_path, written=False, cpu_s=1.0)
    ledger, loading = read(run)
    assert set(waits(ledger)) == {"other"}
    assert any("records are missing" in sentence for sentence in loading.not_measured)


def test_a_batch_that_is_ready_costs_only_the_hand_over(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader(num_workers=1)
    worker = run.worker(main, 0)
    main.iterate(loader, workers=[worker])
    for batch in range(4):
        worker.fetch(batch, cpu_s=0.1, put_s=0.01)
    worker.idle(4.0)
    main.at(0.5)
    for _ in range(4):
        main.step(loader, wait_s=0.01, forward_s=0.5, backward_s=0.5, worker=0)
    ledger, loading = read(run)
    assert waits(ledger) == {"ipc": 0.03}
    assert loading.workers.idle_share == pytest.approx(1.0)


def test_unpickling_is_hand_over_even_when_the_batch_is_not_found(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader(num_workers=1)
    worker = run.worker(main, 0)
    main.iterate(loader, workers=[worker])
    for _ in range(3):
        main.step(loader, wait_s=1.0, backward_s=0.5, worker=0)
        main.emit(kinds.DESERIALIZE, main.now_s - 0.7, main.now_s - 0.5, a=1000)
    worker.idle(10.0)
    ledger, loading = read(run)
    assert waits(ledger) == {"ipc": 0.4, "idle": 1.6}
    assert loading.delivery.deserialize_s == pytest.approx([0.2, 0.2])


def test_new_workers_each_epoch_are_an_epoch_boundary(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader(num_workers=1)
    for epoch in range(3):
        start = main.now_s
        worker = run.worker(main, 0, start_s=start, startup_s=0.6)
        main.iterate(loader, 0.1, workers=[worker])
        worker.fetch(0, cpu_s=0.4, put_s=0.0)
        main.step(loader, wait_s=worker.now_s - main.now_s, backward_s=0.5, worker=0)
        worker.fetch(1, cpu_s=0.4, put_s=0.0)
        main.step(loader, wait_s=0.2, backward_s=0.5, worker=0)
        main.end_pass(loader, 0.05)
        assert epoch < 3
    ledger, loading = read(run)
    boundary = {child.id: pytest.approx(child.seconds) for child in ledger.account("epoch_boundary").children}
    assert boundary == {
        "epoch_boundary.worker_startup": 2 * 0.5,
        "epoch_boundary.launch": 2 * 0.1,
        "epoch_boundary.end": 2 * 0.05,
    }
    assert loading.workers.start_s == pytest.approx([0.6] * 3)
    assert loading.workers.starts_in_window == 2 and loading.delivery.epochs_started == 2


def test_drawing_the_order_and_restarting_workers_never_claim_the_same_time(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader(num_workers=1)
    own = ["/home/me/train.py", 30, "main", "for batch in loader:", True]
    torch_loader = ["/env/site-packages/torch/utils/data/dataloader.py", 1200, "__init__", "w.start()", False]
    fork = ["/usr/lib/python3.11/multiprocessing/popen_fork.py", 66, "_launch", "self.pid = os.fork()", False]
    sampler = ["/home/me/order.py", 9, "__iter__", "random.shuffle(order)", True]
    outer = ["/usr/lib/python3.11/multiprocessing/spawn.py", 122, "spawn_main", "exitcode = _main(fd)", False]
    launch = main.name("stack", frames=[fork, torch_loader, own, outer])
    draw = main.name("stack", frames=[sampler, torch_loader, own, outer])
    for _ in range(3):
        start = main.now_s
        for tick in range(10):
            stack = draw if tick < 3 else launch
            time_s = start + 0.1 * tick + 0.05
            main.emit(kinds.STACK, time_s, time_s, stack, 100_000_000, ord("R"))
        worker = run.worker(main, 0, start_s=start, startup_s=0.5)
        main.iterate(loader, 1.0, workers=[worker])
        worker.at(main.now_s)
        for batch in range(4):
            worker.fetch(batch, cpu_s=0.1, put_s=0.0)
            main.step(loader, wait_s=0.1, backward_s=0.5, worker=0)
        main.end_pass(loader, 0.25)
    view = build_view(load_run(run.write()))
    restart, begin = worker_restart(Context.of(view)), epoch_start(Context.of(view))
    assert begin.share * view.ledger.window_s == pytest.approx(2 * 0.3)
    assert begin.evidence[1].text.startswith("/home/me/order.py:9")
    assert restart.share * view.ledger.window_s == pytest.approx(2 * (0.7 + 0.25))


def test_without_workers_the_training_process_fetches(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader()
    main.iterate(loader)
    for _ in range(4):
        start = main.now_s
        main.fetch(cpu_s=0.3, blocked_s=0.2, collate_s=0.1, read_bytes=4000, storage_bytes=0)
        main.at(start)
        main.step(loader, wait_s=0.55, backward_s=0.45)
    ledger, loading = read(run)
    assert waits(ledger) == {"fetch_cpu": 0.6, "fetch_blocked": 0.6, "collate": 0.3, "other": 0.15}
    assert loading.settings.num_workers == 0 and loading.workers.idle_share is None
    assert loading.fetch.collate_s == pytest.approx([0.1] * 3)
    assert loading.storage.bytes_read_per_sample == 1000 and loading.storage.uncached_bytes_per_sample == 0
    assert ledger.epochs[0].cold is False


def test_rows_of_a_table_are_a_group_with_the_package_and_the_line_that_asks_for_them(tmp_path):
    run, _, worker = starved(tmp_path, cpu_s=0.5, blocked_s=0.5)
    site = "/venv/lib/python3.11/site-packages"
    frames = [
        [f"{site}/pandas/core/internals/managers.py", 1, "BlockManager.fast_xs", "", False],
        [f"{site}/pandas/core/indexing.py", 2, "_LocationIndexer.__getitem__", "", False],
        ["/home/me/data.py", 31, "Visits.__getitem__", "row = self.rows.iloc[index]", True],
    ]
    stack = worker.name("stack", frames=frames)
    for time_s in (1.8, 1.9, 2.0):
        worker.emit(kinds.STACK, time_s, time_s, stack, 50_000_000, ord("R"))
    worker.sample(2.1, "image = cv2.imdecode(data, 1)", line=40)
    functions = read(run)[1].functions
    assert functions.cpu_groups == {"lookup": pytest.approx(0.75), "decode": pytest.approx(0.25)}
    assert functions.packages == {"lookup": "pandas"}
    assert [(line.file, line.line) for line in functions.lines_of_group["lookup"]] == [("/home/me/data.py", 31)]
    assert [line.line for line in functions.lines_of_group["decode"]] == [40]


def test_functions_of_fetches_are_told_apart_by_the_threads_state(tmp_path):
    run, _, worker = starved(tmp_path, cpu_s=0.5, blocked_s=0.5)
    # Fetches begin at 0.5 s, 1.6 s and so on; the window begins at 1.75 s.
    for start, source, state in (
        (1.76, "Image.open(path)", "R"),
        (1.8, "Image.open(path)", "R"),
        (1.9, "image.resize((224, 224))", "R"),
        (2.0, "cv2.imdecode(data, 1)", "R"),
        (2.1, "data = file.read()", "S"),
        (2.2, "data = file.read()", "D"),
        (2.25, "with self.lock:", "S"),
        (2.65, "ignored = outside.the.fetch()", "S"),
    ):
        worker.sample(start, source, line=len(source), state=state)
    ledger, loading = read(run)
    assert loading.functions.cpu_groups == {"decode": pytest.approx(0.75), "transform": pytest.approx(0.25)}
    assert loading.functions.blocked_groups == {"read": pytest.approx(2 / 3), "lock": pytest.approx(1 / 3)}
    assert loading.functions.cpu_lines[0].source == "Image.open(path)"
    assert loading.functions.cpu_lines[0].seconds == pytest.approx(1.5 * 0.5)
    blocked = ledger.account("batch_wait.fetch_blocked")
    assert ledger.account("batch_wait.fetch_blocked.read").seconds == pytest.approx(blocked.seconds * 2 / 3)


@pytest.mark.parametrize(
    ("sample_bytes", "cold"), [(4_000_000, [True, None, False]), (4000, [None, None, False])], ids=["data", "programs"]
)
def test_epochs_are_cold_when_storage_delivered_the_bytes(tmp_path, sample_bytes, cold):
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader()
    for part in (1.0, 0.2, 0.0):
        main.iterate(loader)
        for _ in range(3):
            start = main.now_s
            main.fetch(blocked_s=0.5, read_bytes=sample_bytes, storage_bytes=int(part * sample_bytes))
            main.at(start)
            main.step(loader, wait_s=0.5, backward_s=0.5)
        main.end_pass(loader)
    ledger, _ = read(run)
    assert [epoch.cold for epoch in ledger.epochs] == cold


@pytest.mark.parametrize(
    ("read_bytes", "peers", "reads_data"), [(200, {}, False), (4000, {}, True), (200, {"10.0.0.1:443": 3}, True)]
)
def test_samples_that_are_made_are_neither_from_storage_nor_from_memory(tmp_path, read_bytes, peers, reads_data):
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader()
    main.iterate(loader)
    for _ in range(3):
        start = main.now_s
        main.fetch(cpu_s=0.5, read_bytes=read_bytes, storage_bytes=0)
        main.at(start)
        main.step(loader, wait_s=0.5, backward_s=0.5)
    main.names.append({"id": 0, "type": "files", "peers": peers})
    epoch = read(run)[0].epochs[0]
    assert (epoch.reads_data, epoch.cold) == (reads_data, False if reads_data else None)


def test_a_mount_that_the_kernel_does_not_count_is_never_called_warm(tmp_path):
    run = RunBuilder(tmp_path)
    run.machine["mounts"].append({"point": "/data", "kind": "mountpoint-s3", "remote": True})
    main = run.process()
    loader = main.loader()
    main.iterate(loader)
    for _ in range(3):
        start = main.now_s
        main.fetch(blocked_s=0.5, read_bytes=4000, storage_bytes=0)
        main.at(start)
        main.step(loader, wait_s=0.5, backward_s=0.5)
    main.names.append({"id": 0, "type": "files", "opens": 8, "dirs": {"/data/train/cats": 6, "/home/me": 2}})
    main.names.append({"id": 0, "peers": {"10.0.0.1:443": 3}})
    ledger, loading = read(run)
    assert ledger.epochs[0].cold is None
    assert loading.storage.mounts == {"/data (mountpoint-s3)": 0.75, "/ (nvme)": 0.25}
    assert loading.storage.peers == ("10.0.0.1:443",)
    assert any("lower bound" in sentence for sentence in loading.not_measured)


@pytest.mark.parametrize(("settings", "samples", "files"), [({"batch_size": 4}, 1, 24.0), ({}, 1, 6.0), ({}, 4, 6.0)])
def test_a_data_set_that_makes_whole_batches_makes_several_samples_at_once(tmp_path, settings, samples, files):
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader(**{"batch_size": None, **settings})
    main.iterate(loader)
    for _ in range(3):
        start = main.now_s
        main.fetch(samples=samples, cpu_s=0.5, read_bytes=8000, storage_bytes=0)
        main.at(start)
        main.step(loader, wait_s=0.5, backward_s=0.5)  # of four samples
    main.names.append({"id": 0, "type": "files", "opens": 72, "dirs": {"/data/train": 72}})
    storage = read(run)[1].storage
    assert storage.files_per_sample == files and storage.bytes_read_per_sample == 8000 * files / 24


def test_without_io_counters_bytes_are_not_measured_rather_than_zero(tmp_path):
    run, _, _ = starved(tmp_path, cpu_s=1.0, io=False)
    ledger, loading = read(run)
    assert loading.storage.bytes_read_per_sample is None and loading.storage.uncached_bytes_per_sample is None
    assert ledger.epochs[0].cold is None
    assert any(sentence.startswith("bytes read: not measured") for sentence in loading.not_measured)


def test_lost_names_still_find_the_workers_by_their_parent(tmp_path):
    run, _, _ = starved(tmp_path, cpu_s=1.0)
    path = run.write()
    for file in (path / "processes").glob("100-*.names"):
        file.unlink()
    ledger = ledger_of(load_run(path))
    check_sums(ledger)
    assert ledger.account("batch_wait.fetch_cpu").seconds > 2.0


def test_a_loop_without_a_loader_has_no_loading(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(3):
        main.step(forward_s=0.1, backward_s=0.1)
    assert read(run)[1] is None


def test_arrays_hold_one_entry_a_step(tmp_path):
    run, _, _ = starved(tmp_path, cpu_s=1.0, batches=6)
    ledger, loading = read(run)
    assert len(loading.delivery.wait_s) == len(loading.delivery.whole_step_s) == ledger.steps.count == 5
    assert np.all(loading.delivery.whole_step_s >= loading.delivery.wait_s)
