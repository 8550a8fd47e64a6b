"""A small record with something of everything: two ranks, workers, names of every type, samples, GPUs."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from flatout.probe import events as kinds
from tests.record.synthetic import RUN_START_NS, ProcessBuilder, RunBuilder, ns

STEPS = 14


def rich_run(folder: Path, id: str = "rich", mark: str = "") -> Path:
    """Write the record.

    Args:
        folder: where the run folder is made.
        id: of the run.
        mark: put into every text of the record that a person or a program has chosen.
    """
    run = RunBuilder(folder, id)
    main = run.process(
        argv=["python", f"train{mark}.py"], rank=0, local_rank=0, world_size=2, device_count=1, cwd=f"/home/me{mark}",
        device_uuid="GPU-1", cuda="12.8", cudnn_benchmark=False, tf32=False, autocast=None, param_dtype="float32",
        convolutions=2, channels_last=False, outputs=1000, compiled=False, param_bytes=10**8, start_method="fork",
        applied={"num_workers": 2}, refused={"compile": f"because{mark}"}, not_patched={f"wandb{mark}": f"gone{mark}"},
        executable=f"/usr/bin/python{mark}",
        ceilings={"device": "cuda", "threads": 8, "product_flops": {"float32": 1e13}, "memory_bps": [[1 << 26, 1e12]]},
    )  # fmt: skip
    other = run.process(rank=1, local_rank=1, world_size=2, device_count=1)
    for process in (main, other):
        _train(run, process, mark)
    run.machine = _machine(mark)
    run.system = [_sample(second / 2, [process.pid for process in run.processes], mark) for second in range(14)]
    problems = [f"left in /dev/shm{mark}: psm_1"]
    return run.write(command=["python", f"train{mark}.py", f"--name={mark}"], problems=problems, cwd=f"/home/me{mark}")


def _train(run: RunBuilder, main: ProcessBuilder, mark: str) -> None:
    file = f"/home/me/train{mark}.py"
    loader = main.loader(
        num_workers=2, prefetch_factor=2, start_method="fork", site=f"{file}:10", dataset=f"__main__.Photos{mark}",
        sampler="torch.utils.data.sampler.RandomSampler", collate_fn=f"collate{mark}", dataset_len=4 * STEPS,
        batch_layout=["float32 [4, 3, 8, 8]"], drop_last=False, timeout=0,
    )  # fmt: skip
    held_out = main.loader(num_workers=0, site=f"{file}:90", dataset=f"__main__.HeldOut{mark}")
    workers = [run.worker(main, number, startup_s=0.1) for number in range(2)]
    main.spend(kinds.IMPORT, 0.4, main.text("torch"))
    main.iterate(loader, 0.05, workers)
    for batch in range(STEPS):
        worker = workers[batch % 2]
        begin_s = worker.now_s
        worker.fetch(batch, 4, cpu_s=0.15, runqueue_s=0.02, blocked_s=0.1, collate_s=0.02, read_bytes=400_000,
                     storage_bytes=300_000, put_s=0.01)  # fmt: skip
        worker.sample(begin_s + 0.05, f"image = Image.open(path){mark}", 31, file=file)
        worker.sample(
            begin_s + 0.1, "return f.read()", 40, file="/usr/lib/python3.11/pathlib.py", state="D", user=False
        )
        worker.emit(kinds.TRANSFORM, begin_s, begin_s + 0.03, worker.text(f"ColorJitter{mark}"), 187_500, 187_500)
        worker.emit(
            kinds.TRANSFORM, begin_s + 0.03, begin_s + 0.05, worker.text("RandomResizedCrop"), 187_500, 4096 | 1 << 48
        )
        worker.emit(kinds.SERIALIZE, begin_s + 0.26, begin_s + 0.27, a=2000)
        main.mode(True)
        main.step(loader, wait_s=0.2, h2d_s=0.01, forward_s=0.05, backward_s=0.08 + 0.01 * (main.pid % 2),
                  optimizer_s=0.01, read_s=0.01, host_s=0.03, worker=batch % 2)  # fmt: skip
        main.sample(main.now_s - 0.02, f"print(loss){mark}", 50, file=file)
        main.emit(
            kinds.METRIC,
            main.now_s,
            main.now_s,
            main.text(f"loss{mark}"),
            struct.unpack("<q", struct.pack("<d", 1 / (1 + batch)))[0],
        )
        main.spend(kinds.LOG, 0.005, main.text(f"wandb{mark}"))
        if batch % 6 == 5:
            main.mode(False)
            main.spend(kinds.CHECKPOINT, 0.05, main.text(f"/out{mark}/model.pt"), 10**8)
            with main.inside(kinds.VALIDATION, main.text("Trainer.validate")):
                main.iterate(held_out)
                main.wait(held_out, 0.02)
            main.emit(
                kinds.METRIC,
                main.now_s,
                main.now_s,
                main.text(f"val/acc{mark}"),
                struct.unpack("<q", struct.pack("<d", 0.1))[0],
            )
            main.spend(kinds.COLLECTIVE, 0.01, main.text("all_reduce"))
            main.spend(kinds.COMPILE, 0.02, main.text(f"Net{mark}"))
    main.end_pass(loader, 0.02)
    for process in (main, *workers):
        process.name("files", opens=80, dirs={f"/data{mark}": 60, "/usr/lib/python3.11": 9, "relative": 3},
                     extensions={".jpg": 60, mark: 1}, sampled={f"/data{mark}/pack": 5, "socket": 2},
                     peers={f"10.0.0.1{mark}:443": 4})  # fmt: skip


def _machine(mark: str) -> dict[str, Any]:
    gpu = {
        "index": 0, "name": f"NVIDIA H100{mark}", "uuid": "GPU-1", "memory_bytes": 80 << 30, "driver": f"570{mark}",
        "compute_capability": "9.0", "pcie_generation": 5, "pcie_generation_max": 5, "pcie_width": 16,
        "pcie_width_max": 16, "power_limit_w": 700.0, "sm_clock_max_mhz": 1980, "memory_clock_max_mhz": 2619,
        "mig": False, "mig_devices": None,
    }  # fmt: skip
    return {
        "cores": {"usable": 4.0, "online": 8, "affinity": 8, "quota": 4.0, "model": f"EPYC{mark}",
                  "derived": {"usable": "quota"}},
        "memory": {"total_bytes": 64 << 30, "available_bytes": 32 << 30, "limit_bytes": 48 << 30,
                   "limit_from": f"/sys{mark}"},
        "shm": {"size_bytes": 1 << 30, "free_bytes": 1 << 30},
        "mounts": [
            {"point": "/", "kind": "nvme", "source": "/dev/nvme0n1", "fs_type": "ext4", "remote": False},
            {"point": f"/data{mark}", "kind": "fuse", "source": f"s3{mark}", "fs_type": "fuse.rclone", "remote": True},
        ],
        "gpus": [gpu, {**gpu, "index": 1, "uuid": "GPU-2"}],
        "kernel": f"6.8{mark}",
        "cgroup": "v2",
        "not_measured": {"memory.limit": f"because{mark}"},
    }  # fmt: skip


def _sample(second: float, pids: list[int], mark: str) -> dict[str, Any]:
    return {
        "t": RUN_START_NS + ns(second), "cpu": [0.5, 0.7, 0.1, 0.2], "cpu_usable": 4.0,
        "throttled_ns": ns(second * 0.4), "runqueue_ns": ns(second),
        "memory": {"used": 10 << 30, "limit": 48 << 30, "available": 38 << 30},
        "shm": {"used": 1 << 20, "size": 1 << 30},
        "psi": {"cpu": {"some": 5, "full": 0}, "io": None, "memory": {"some": 1, "full": None}},
        "disks": {f"nvme0n1{mark}": {"read_bytes": 5, "read_count": 1, "write_bytes": 0, "busy_ms": 3}},
        "net": {f"eth0{mark}": {"recv": ns(second) // 100, "sent": 10}},
        "gpus": [{"index": i, "util": 0.4, "memory_used": 2 << 30, "memory_total": 80 << 30, "power_w": 300.0,
                  "sm_mhz": 1500, "temperature": 70, "throttle": [f"hw_thermal_slowdown{mark}"]} for i in range(2)],
        "processes": [{"pid": pid, "ppid": 1, "name": f"python{mark}",
                       "rss": (1 << 30) + ns(second) // 10, "pss": 1 << 29, "cpu_s": second * 0.5,
                       "runqueue_s": second * 0.1, "threads": 4, "majflt": 1, "system_s": second * 0.1,
                       "children_s": second * 0.1, "minflt": ns(second) // 10**6} for pid in pids],
    }  # fmt: skip
