"""A record of any length, laid down as the probe would write it: one training process, two workers, a starved loop."""

from __future__ import annotations

from pathlib import Path

from tests.record.synthetic import RUN_START_NS, RunBuilder, ns

WORKERS = 2
EPOCHS = 4
STEP_S, FETCH_S = 0.004, 0.016  # a step, and a fetch by one of two workers: the training waits half of the time
ITEMS_EVERY = 20  # batches: the probe times single samples of few batches


def lay_down(folder: Path, steps: int) -> Path:
    """Write a record of so many steps, with stack samples and system samples at the probe's usual rates."""
    run = RunBuilder(folder, f"steps-{steps}")
    run.machine["cores"] = {"usable": 4.0, "online": 4}
    main = run.process()
    loader = main.loader(
        num_workers=WORKERS, prefetch_factor=2, batch_size=4, persistent_workers=True, start_method="fork"
    )
    workers = [run.worker(main, number, startup_s=0.05) for number in range(WORKERS)]
    each = steps // EPOCHS
    for epoch in range(EPOCHS):
        main.iterate(loader, 0.001, workers if epoch == 0 else ())
        for worker in workers:
            worker.at(max(worker.now_s, main.now_s))
        for batch in range(each):
            worker = workers[batch % WORKERS]
            worker.idle(0.0001)
            begin_s = worker.now_s
            worker.fetch(
                batch,
                cpu_s=0.8 * FETCH_S,
                runqueue_s=0.001,
                blocked_s=0.2 * FETCH_S - 0.001,
                collate_s=0.001,
                read_bytes=400_000,
                items=batch % ITEMS_EVERY == 0,
                put_s=0.0001,
            )
            if batch % 6 == 0:  # 20 samples a second
                worker.sample(begin_s + 0.002, "image = Image.open(path).convert('RGB')", 31)
                worker.sample(begin_s + 0.015, "return file.read()", 40, state="D")
                main.sample(main.now_s + 0.001, "for batch in loader:", 10, state="S")
            wait_s = max(worker.now_s - main.now_s, 0.0001)
            main.step(
                loader,
                wait_s=wait_s,
                forward_s=0.4 * STEP_S,
                backward_s=0.4 * STEP_S,
                optimizer_s=0.1 * STEP_S,
                host_s=0.1 * STEP_S,
                worker=batch % WORKERS,
            )
    pids = [process.pid for process in run.processes]
    for second in range(int(main.now_s) + 1):
        used = [{"pid": pid, "rss": 1 << 29, "pss": 1 << 28, "cpu_s": 0.8 * second, "threads": 4} for pid in pids]
        run.system.append({"t": RUN_START_NS + ns(second), "cpu": [0.8] * 4, "cpu_usable": 4.0, "processes": used})
    return run.write()
