"""Hand-made diagnoses: a starved run as in a field report, a healthy one, a partly measured one, one without steps."""

from __future__ import annotations

from flatout.results import Account, Cause, Diagnosis, Epoch, Evidence, Gain, Ledger, Line, NotMeasured, Remedy, Steps

WINDOW_S = 709.4


def _account(id: str, label: str, seconds: float, window_s: float = WINDOW_S, **rest: object) -> Account:
    return Account(id, label, seconds, seconds / window_s, **rest)  # type: ignore[arg-type]


def starved() -> Diagnosis:
    """ResNet-50 on a data set behind a network mount: the first epoch cold, the next two partly cached."""
    loading = Line(
        "/home/somebody/projects/imagenet/training/datasets/subset.py",
        88,
        "__getitem__",
        "        image = Image.open(self.root / self.samples[index].relative_path).convert('RGB')",
        430.2,
    )
    accounts = (
        _account(
            "batch_wait",
            "batch wait",
            561.2,
            children=(
                _account("batch_wait.fetch_blocked", "workers blocked on reads", 503.7, lines=(loading,)),
                _account("batch_wait.fetch_cpu", "workers on a core", 43.0),
                _account("batch_wait.worker_start", "workers starting", 13.5),
                _account("batch_wait.collate", "workers collating", 0.7),
                _account("batch_wait.deserialize", "unpickling", 0.3),
            ),
            note="Divided by what the 8 workers were doing at that time.",
        ),
        _account("backward", "backward", 71.3),
        _account("forward", "forward", 35.9),
        _account(
            "blocking_read",
            "blocking reads of the device",
            18.2,
            lines=(Line("train.py", 141, "train_epoch", "running_loss += loss.item()", 17.9),),
        ),
        _account("optimizer", "optimizer", 9.1),
        _account("h2d", "host-to-device copy", 3.1),
        _account("logging", "log and metric writes", 1.8),
        _account("checkpoint", "checkpoint writes", 1.2),
    )
    unaccounted_s = WINDOW_S - sum(account.seconds for account in accounts)
    epochs = (
        Epoch(0, 457.1, 195, 49920, True, True, {"batch_wait": 0.912, "backward": 0.05}),
        Epoch(1, 136.4, 195, 49920, False, True, {"batch_wait": 0.72, "backward": 0.17}),
        Epoch(2, 115.9, 186, 47616, False, False, {"batch_wait": 0.68, "backward": 0.2}),
    )
    ledger = Ledger(
        wall_s=724.0,
        startup_s=12.3,
        startup=(
            Account("imports", "imports", 7.1, 7.1 / 12.3),
            Account("first_batch", "first batch", 4.4, 4.4 / 12.3),
        ),
        window_s=WINDOW_S,
        accounts=accounts,
        unaccounted_s=unaccounted_s,
        ending_s=2.3,
        epochs=epochs,
        steps=Steps(575, 147200, 0.623, 4.81, 0.301, 19.7, 207.5, 1.0),
        notes=("The first step is part of the start-up.",),
    )
    causes = (
        Cause(
            "storage_latency",
            "Reads from remote storage keep the workers waiting",
            0.71,
            0.93,
            (
                Evidence(
                    "503.7 s of the 561.2 s of batch wait pass while workers are blocked in read() on files below "
                    "/mnt/datasets (fuse.mountpoint-s3).",
                    {"blocked_s": 503.7, "wait_s": 561.2, "mount": "/mnt/datasets (fuse.mountpoint-s3)"},
                ),
                Evidence(
                    "Epoch 0 read from storage at 109 samples/s, epoch 1 from memory at 366 samples/s.",
                    {"cold_sps": 109, "warm_sps": 366},
                ),
            ),
        ),
        Cause(
            "worker_restart",
            "Workers are started anew in each epoch",
            0.019,
            0.74,
            (Evidence("2 starts of 8 workers took 13.5 s.", {"starts": 2, "seconds": 13.5}),),
        ),
        Cause("device_sync", "loss.item() waits for the device in each step", 0.026, 0.6, (), "storage_latency"),
    )
    remedies = (
        Remedy(
            "stage_locally",
            "storage_latency",
            "copy the data set (5.5 GB) from the mount to the local disk",
            "identical",
            "low",
            Gain(3.9, 3.1, 4.6),
            0,
            "cp -r /mnt/datasets/subset /local/subset, then --data_root /local/subset",
            "the workers' time on a core and the device's rate, both measured",
        ),
        Remedy(
            "more_workers",
            "storage_latency",
            "raise num_workers from 8 to 16",
            "identical",
            "low",
            Gain(1.85, 1.6, 1.98),
            1_300_000_000,
            "DataLoader(dataset, batch_size=256, num_workers=16, persistent_workers=True)",
            "8 workers blocked 90% of their fetch time; 8 cores",
        ),
        Remedy(
            "amp",
            "compute_bound",
            "train in bfloat16 (autocast)",
            "numerics",
            "medium",
            Gain(1.01, 1.0, 1.02),
            None,
            "with torch.autocast('cuda', dtype=torch.bfloat16): ...",
            "the device works 19% of the time",
        ),
    )
    return Diagnosis(
        run_id="20261121-011500-a3f9",
        run_path=".flatout/runs/20261121-011500-a3f9",
        command=("python", "train.py", "--config", "configs/stress_test.yaml", "--no_wandb", "--epochs", "3"),
        verdict="The GPU waits for data 79% of the time: reads from /mnt/datasets (mountpoint-s3) are slow.",
        ledger=ledger,
        causes=causes,
        not_measured=(
            NotMeasured("cpu_decode", "no stack sample fell into a worker's fetch"),
            NotMeasured("cpu_transform", "no stack sample fell into a worker's fetch"),
            NotMeasured("validation", "the run was stopped before its first validation"),
        ),
        remedies=remedies,
        problems=("2 of 8 worker processes were killed: their last events are missing.",),
        next_command="flatout profile --full -- python train.py --config configs/stress_test.yaml --no_wandb "
        "--epochs 3 --data_root '/local/subset of a thousand'",
        machine="8 of 8 cores, 62 GiB memory, 31 GiB /dev/shm, NVIDIA A10G 23 GiB",
    )


def healthy() -> Diagnosis:
    """A run whose device is busy all the time: nothing to gain from data."""
    window_s = 6.712
    accounts = (
        _account("backward", "backward", 4.301, window_s),
        _account("forward", "forward", 2.104, window_s),
        _account("optimizer", "optimizer", 0.201, window_s),
        _account("batch_wait", "batch wait", 0.051, window_s),
    )
    return Diagnosis(
        run_id="20261121-020000-0b1c",
        run_path=".flatout/runs/20261121-020000-0b1c",
        command=("python", "-m", "mine.train"),
        verdict="The training computes 98% of the time: there is nothing to gain from data.",
        ledger=Ledger(
            wall_s=9.6,
            startup_s=2.8,
            startup=(),
            window_s=window_s,
            accounts=accounts,
            unaccounted_s=window_s - sum(account.seconds for account in accounts),
            ending_s=0.088,
            epochs=(Epoch(0, window_s, 200, 6400, None, True, {"backward": 0.64}),),
            steps=Steps(200, 6400, 0.0331, 0.0352, 0.0319, 0.0401, 953.5, 4.0),
        ),
        causes=(
            Cause(
                "compute_bound",
                "The device is the limit",
                0.98,
                0.95,
                (Evidence("Batches were ready before 199 of 200 steps.", {"ready": 199}),),
            ),
        ),
        not_measured=(),
        remedies=(),
        problems=(),
        next_command="flatout report 20261121-020000-0b1c --markdown",
        machine="16 cores, 128 GiB memory, NVIDIA H100 80 GiB",
    )


def partly_measured() -> Diagnosis:
    """A short run in a container that hides most counters, and no batch size to be seen."""
    window_s = 0.84
    return Diagnosis(
        run_id="20261121-030000-77aa",
        run_path="/scratch/" + "very_long_folder_name/" * 6 + "20261121-030000-77aa",
        command=("torchrun", "--nproc-per-node=4", "/workspace/" + "deeply/nested/" * 8 + "train.py"),
        verdict="The run is input-bound (52%), but the record does not say why.",
        ledger=Ledger(
            wall_s=4.1,
            startup_s=3.26,
            startup=(Account("imports", "imports", 3.26, 1.0),),
            window_s=window_s,
            accounts=(
                _account("batch_wait", "batch wait", 0.44, window_s, note="not divided: no worker left a record"),
                _account("host", "other host code: " + "a_function_with_a_long_name " * 3, 0.2, window_s),
            ),
            unaccounted_s=0.2,
            ending_s=0.0,
            epochs=(),
            steps=Steps(12, 0, 0.07, 0.09, 0.06, 0.1, float("nan"), 1.0),
        ),
        causes=(),
        not_measured=(NotMeasured("storage_latency", "/proc/self/io is not readable in this container"),),
        remedies=(),
        problems=(),
        next_command="flatout profile --seconds 60 -- torchrun train.py",
        machine="cores not measured",
    )


def without_steps() -> Diagnosis:
    """A script that ended before its first step."""
    return Diagnosis(
        run_id="20261121-040000-1234",
        run_path=".flatout/runs/20261121-040000-1234",
        command=("python", "train.py"),
        verdict="No training step was seen.",
        ledger=None,
        causes=(),
        not_measured=(),
        remedies=(),
        problems=("The script ended with exit code 1 before its first step: FileNotFoundError: data/train.csv",),
        next_command="flatout profile --full -- python train.py",
        machine="2 cores, 7.8 GiB memory",
    )


ALL = {one.__name__: one for one in (starved, healthy, partly_measured, without_steps)}
