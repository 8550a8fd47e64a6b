"""Each format, on files that its own program wrote, or on lines as it writes them."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.export.protobuf import message, text, uint
from flatout.logs.postmortem import Postmortem, read_logs

CLEAN = Path(__file__).parent / "data" / "clean"
LOGS = sorted(path.name for path in CLEAN.iterdir())


def only(path: Path) -> Postmortem:
    return read_logs([path])


@pytest.mark.parametrize("name", LOGS)
def test_nothing_is_called_off_in_the_log_of_a_real_training(name: str) -> None:
    read = only(CLEAN / name)
    assert [one for one in read.claims if one.verdict == "off"] == []
    assert read.files[0].facts.observations and not read.files[0].facts.troubles


@pytest.mark.parametrize(
    ("name", "format", "epochs", "steps"),
    [
        ("lightning_tqdm.log", "text", 4, 40),
        ("tqdm_plain.log", "text", 4, 40),
        ("tqdm_outer.log", "text", 5, 40),
        ("hf.log", "text", 1, 300),
        ("timm.log", "text", 3, 12),
        ("events.out.tfevents.1", "TensorBoard events", 1, 299),
        ("trace.json.gz", "torch.profiler trace", 1, 4),
    ],
)
def test_epochs_and_their_steps_are_counted(name: str, format: str, epochs: int, steps: int) -> None:
    (file,) = only(CLEAN / name).files
    assert (file.facts.format, len(file.epochs), file.epochs[0].time.steps) == (format, epochs, steps)
    assert all((one.time.seconds or 0) > 0 for one in file.epochs)


@pytest.mark.parametrize("name", ["trainer_state.json", "lightning_metrics.csv", "timm_summary.csv"])
def test_a_table_without_times_gives_metrics_and_no_rate(name: str) -> None:
    read = only(CLEAN / name)
    (file,) = read.files
    assert {"train_loss", "val_loss", "val_acc1"} <= set(file.facts.metrics) and not file.epochs
    assert any(one.what == "the throughput" for one in read.unknown)


def test_a_cut_log_projects_what_the_whole_one_took(tmp_path: Path) -> None:
    """By a bar that is half through: 5,004 steps at one a second, the first blocks slower."""
    states, elapsed = [], 0.0
    for n in range(1, 2503):
        elapsed += 1.6 if n < 40 else 1.0
        states.append(
            f"Epoch 0:  {n * 100 // 5004:2d}%|##  | {n}/5004 "
            f"[{int(elapsed) // 60:02d}:{int(elapsed) % 60:02d}<?, 1.00it/s]"
        )
    (tmp_path / "train.log").write_text("\r".join(states))
    projection = only(tmp_path / "train.log").files[0].projection
    assert projection is not None and projection.low_s <= 5004 - 2502 <= projection.high_s
    assert projection.high_s < 1.2 * projection.low_s


LINES = {
    "imagenet": (
        "Epoch: [0][ 990/1000]\tTime  0.512 ( 0.900)\tData  0.001 ( 0.600)\tLoss 6.9 (6.9)\tAcc@1   0.00 (  0.10)\n"
        "Epoch: [1][ 990/1000]\tTime  0.512 ( 0.300)\tData  0.001 ( 0.003)\tLoss 6.1 (6.2)\tAcc@1   1.00 (  2.10)\n",
        [(0, 891, 0.667), (1, 297, 0.01)],
    ),
    "mmengine": (
        "10/12 10:00:00 - mmengine - INFO - Epoch(train)  [1][50/391]  lr: 1.0e-01  eta: 0:10:00  time: 0.2000  "
        "data_time: 0.0500  memory: 1200  loss: 2.1000\n",
        [(1, 10, 0.25)],
    ),
    "openclip": (
        "2026-03-01,10:00:40 | INFO | Train Epoch: 1 [  51200/256000 (20%)] Data (t): 0.300 Batch (t): 0.400, 640.0/s, "
        "640.0/s/gpu LR: 0.000500 Logit Scale: 14.2 Contrastive_loss: 5.0 (5.4) Loss: 5.3 (5.4)\n",
        [(1, 80, 0.75)],
    ),
    "paddledet": (
        "[03/01 10:00:16] ppdet.engine INFO: Epoch: [0] [100/200] learning_rate: 0.01 loss: 2.20 eta: 0:39:30 "
        "batch_cost: 0.4000 data_cost: 0.1000 ips: 20.0000 images/s\n",
        [(0, 40, 0.25)],
    ),
    "paddleclas": (
        "[2026/11/20 10:00:15] ppcls INFO: [Train][Epoch 1/10][Iter: 20/100]lr(Piecewise): 0.1, top1: 0.12000, CELoss: "
        "2.2, loss: 2.2, batch_cost: 0.50000s, reader_cost: 0.20000, ips: 128.00000 samples/s, eta: 0:08:10\n",
        [(1, 10, 0.4)],
    ),
    "espnet": (
        "[node1] 2026-11-20 10:01:00,123 (trainer:762) INFO: 1epoch:train:101-150batch: iter_time=0.100, forward_time="
        "0.200, loss_ctc=90.5, acc=0.41, loss=75.1, backward_time=0.180, optim0_lr0=1.0e-05, train_time=0.600\n",
        [(1, 90, 1 / 6)],
    ),
    "deepspeed": (
        "[2026-11-20 10:00:00,100] [INFO] [timer.py:199:stop] epoch=0/micro_step=10/global_step=10, "
        "RunningAvgSamplesPerSec=16.2, CurrSamplesPerSec=16.0, MemAllocated=10.0GB\n"
        "[2026-11-20 10:00:20,100] [INFO] [timer.py:199:stop] epoch=0/micro_step=30/global_step=30, "
        "RunningAvgSamplesPerSec=16.1, CurrSamplesPerSec=16.0, MemAllocated=10.0GB\n",
        [(None, 20, None)],
    ),
    "stable-baselines3": (
        "| time/                   |             |\n|    fps                  | 819         |\n"
        "|    iterations           | 20          |\n|    time_elapsed         | 50          |\n"
        "|    total_timesteps      | 40960       |\n| train/                  |             |\n",
        [(None, 50, None)],
    ),
    "keras": (
        "Epoch 1/2\n196/196 [==============================] - 457s 2s/step - loss: 4.2 - accuracy: 0.05 - "
        "val_loss: 4.4\n"
        "Epoch 2/2\n196/196 ━━━━━━━━━━━━━━━━━━━━ 98s 500ms/step - accuracy: 0.5 - loss: 3.1 - val_loss: 3.4\n",
        [(1, 457, None), (2, 98, None)],
    ),
    "nnunet": (
        "2026-11-02 12:00:00.12: Epoch 0\n2026-11-02 12:01:33.62: train_loss -0.1\n2026-11-02 12:01:33.63: "
        "val_loss -0.2\n"
        "2026-11-02 12:01:33.64: Pseudo dice [np.float32(0.5), np.float32(0.7)]\n2026-11-02 12:01:33.65: "
        "Epoch time: 93.5 s\n"
        "2026-11-02 12:01:34.12: Epoch 1\n2026-11-02 12:02:34.12: Epoch time: 60.0 s\n",
        [(0, 93.5, None), (1, 60, None)],
    ),
}


@pytest.mark.parametrize("kind", LINES)
def test_lines_of_other_trainers_give_epochs_and_waiting(kind: str, tmp_path: Path) -> None:
    lines, expected = LINES[kind]
    (tmp_path / "train.log").write_text(lines)
    found = only(tmp_path / "train.log").files[0].epochs
    assert [(one.time.epoch, one.time.seconds, one.time.waiting) for one in found] == [
        (epoch, pytest.approx(seconds), waiting if waiting is None else pytest.approx(waiting, abs=0.001))
        for epoch, seconds, waiting in expected
    ]


@pytest.mark.parametrize(
    ("rows", "done", "seconds", "waiting"),
    [
        ([{"time": 20.0}, {"time": 40.0}, {"time": 60.5}], 30, 40.5, None),  # since its start
        ([{"time": 1.7e9}, {"time": 1.7e9 + 5}], 20, 5, None),  # since 1970
        ([{"time": 0.5}, {"time": 0.75}, {"time": 0.25}], 30, 15, None),  # of a step
        ([{"step_time": 0.5, "data_time": 0.1}] * 2, 20, 10, 0.2),
        ([{"time": 20.0}, {"time": 40.0}], None, None, None),  # two rows may be either
    ],
)
def test_times_in_json_lines_are_told_by_how_they_grow(
    rows: list[dict[str, float]], done: float | None, seconds: float | None, waiting: float | None, tmp_path: Path
) -> None:
    lines = (json.dumps({"step": 10 * n, "loss": 3.0 - 0.1 * n, **row}) for n, row in enumerate(rows, 1))
    (tmp_path / "own.jsonl").write_text("\n".join(lines) + "\n")
    (file,) = only(tmp_path / "own.jsonl").files
    assert file.facts.metrics["train_loss"].first == 2.9
    if done is None:
        assert not file.epochs
        return
    (one,) = file.epochs
    assert (one.time.done, one.time.seconds) == (done, pytest.approx(seconds))
    assert one.time.waiting == (None if waiting is None else pytest.approx(waiting))


def test_a_bar_that_ended_leaves_nothing_to_project(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("100%|##########| 200/200 [01:40<00:00,  2.00it/s]\n")
    assert "when it ends" not in [one.what for one in only(tmp_path / "a.log").unknown]
    (tmp_path / "a.log").write_text("Epoch 1: 100%|##########| 200/200 [01:40<00:00,  2.00it/s]\n")
    assert "when it ends" in [one.what for one in only(tmp_path / "a.log").unknown]


SMI = "timestamp, name, utilization.gpu [%], memory.used [MiB], power.draw [W]\n" + "".join(
    f"2026/11/02 12:00:{second:02d}.000, NVIDIA A10G, {98 if second % 2 else 0} %, 12900 MiB, 211.00 W\n"
    for second in range(60)
)


def test_gpu_samples_are_joined_to_the_training_by_time(tmp_path: Path) -> None:
    (tmp_path / "gpu.csv").write_text(SMI)
    steps = "".join(f"2026-11-02 12:00:{second:02d},000 step {second}/100 loss 2.0\n" for second in range(10, 30))
    (tmp_path / "train.log").write_text(steps)
    read = read_logs([tmp_path / "train.log", tmp_path / "gpu.csv"])
    (joined,) = read.joined
    assert (joined.samples, joined.idle, joined.mean) == (20, 0.5, pytest.approx(0.49))
    assert read.files[0].epochs[0].time.its == pytest.approx(1.0)
    assert read.files[1].facts.usage["gpu0 used_bytes"].mean == 12900 * 2**20
    assert read.files[1].facts.devices[0].name == "NVIDIA A10G"


def test_logs_without_times_are_not_joined_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "gpu.csv").write_text(SMI)
    (joined,) = read_logs([CLEAN / "tqdm_plain.log", tmp_path / "gpu.csv"]).joined
    assert joined.mean is None and "writes no times" in joined.why


OTHERS = {
    "dmon": (
        "# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec\n# Idx      W      C      C      %      %   "
        "   %      %\n"
        "    0    211     60      -     98     40      0      0\n    1     60     40      -      0      0   "
        "   0      0\n",
        "nvidia-smi dmon",
    ),
    "sacct": (
        "JobID|JobName|Elapsed|TotalCPU|AllocCPUS|MaxRSS|State\n17|train|02:00:00|01:00:00|8|12345678K|OUT_OF_MEMORY\n",
        "SLURM sacct",
    ),
    "columns": (
        "JobID           JobName    Elapsed   TotalCPU  AllocCPUS     MaxRSS      State \n"
        "------------ ---------- ---------- ---------- ---------- ---------- ---------- \n"
        "17                train   02:00:00   01:00:00          8  12345678K OUT_OF_ME+ \n",
        "SLURM sacct",
    ),
    "seff": (
        "Job ID: 17\nCluster: c\nState: OUT_OF_MEMORY (exit code 0)\nNodes: 1\nCores per node: 8\nCPU "
        "Utilized: 01:00:00\n"
        "CPU Efficiency: 6.25% of 16:00:00 core-walltime\nJob Wall-clock time: 02:00:00\nMemory Utilized: 11.77 GB\n",
        "SLURM seff",
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_output_of_schedulers_and_of_dmon(kind: str, tmp_path: Path) -> None:
    content, format = OTHERS[kind]
    (tmp_path / "out.txt").write_text(content)
    facts = only(tmp_path / "out.txt").files[0].facts
    assert facts.format == format
    if kind == "dmon":
        assert facts.usage["gpu0 utilisation"].mean == pytest.approx(0.98) and facts.usage["gpu1 watts"].mean == 60
        return
    (job,) = facts.jobs
    assert (job.values["elapsed_s"], job.values["cpu_s"], job.values["cores"]) == (7200, 3600, 8)
    assert job.values["rss_bytes"] == pytest.approx(12345678 * 1024, rel=0.01)
    assert [one.what for one in facts.troubles] == ["host_oom"]


def test_kaggles_log_and_an_agents_transcript_hold_texts(tmp_path: Path) -> None:
    bar = "Epoch 1: 100%|####| 40/40 [00:20<00:00,  2.00it/s]\n"
    rows = [
        {"stream_name": "stderr", "time": 12.5, "data": bar},
        {"stream_name": "stdout", "time": 13.0, "data": "val_loss: 0.5\n"},
    ]
    (tmp_path / "kaggle.log").write_text("[" + "\n,".join(map(json.dumps, rows)))  # still running: no end
    facts = only(tmp_path / "kaggle.log").files[0].facts
    assert facts.epochs[0].seconds == 20 and facts.metrics["val_loss"].last == 0.5 and facts.to_s == 13.0
    said = {"type": "assistant", "message": {"content": [{"type": "text", "text": f"It printed\n{bar}"}]}}
    (tmp_path / "agent.jsonl").write_text(json.dumps(said) + "\n" + json.dumps({"type": "user"}) + "\n")
    assert only(tmp_path / "agent.jsonl").files[0].facts.epochs[0].steps == 40


def wandb_file(records: list[bytes]) -> bytes:
    """As W&B writes it offline: pieces of records in blocks of 32 KiB."""
    written = bytearray(b":W&B\x17\xb9\x00")
    for record in records:
        first = True
        while True:
            left = 32768 - len(written) % 32768
            if left < 7:
                written += b"\0" * left
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = (1 if first else 4) if not record else (2 if first else 3)
            written += struct.pack("<IHB", 0, len(part), kind) + part
            first = False
            if not record:
                break
    return bytes(written)


def wandb_records() -> list[bytes]:
    def item(key: str, value: object) -> bytes:
        return message(1, text(2, key) + text(16, json.dumps(value)))

    config = message(17, message(4, message(1, text(1, "batch_size") + text(16, "32"))))
    rows = [
        message(
            2,
            item("train/loss", 2 - n / 100)
            + item("_step", n)
            + item("_timestamp", 1.7e9 + n / 2)
            + item("blob", "x" * 900),
        )
        for n in range(100)
    ]
    stats = message(7, message(2, uint(1, 1_700_000_010)) + message(3, text(1, "gpu.0.gpu") + text(16, "75.0")))
    return [config, *rows, stats]


def test_a_wandb_file_is_read_across_its_blocks_and_up_to_where_it_was_cut(tmp_path: Path) -> None:
    whole = wandb_file(wandb_records())
    assert len(whole) > 3 * 32768
    (tmp_path / "run.wandb").write_bytes(whole)
    (file,) = only(tmp_path / "run.wandb").files
    assert file.facts.metrics["train_loss"].count == 100 and file.facts.usage["gpu0 utilisation"].mean == 0.75
    assert (file.epochs[0].time.its, file.epochs[0].rate_sps) == (pytest.approx(2.0), pytest.approx(64.0))
    (tmp_path / "run.wandb").write_bytes(whole[:50_000])
    (file,) = only(tmp_path / "run.wandb").files
    assert 30 < file.facts.metrics["train_loss"].count < 60 and "ends in the middle" in file.facts.notes[0]


def test_a_folder_of_mlflow_gives_its_metrics_and_parameters(tmp_path: Path) -> None:
    run = tmp_path / "mlruns" / "0" / "abc"
    (run / "metrics").mkdir(parents=True)
    (run / "params").mkdir()
    (run / "meta.yaml").write_text("run_id: abc\n")
    (run / "params" / "batch_size").write_text("64")
    (run / "metrics" / "train_loss").write_text(
        "".join(f"{1_700_000_000_000 + n * 500} {1 / (n + 1)} {n}\n" for n in range(9))
    )
    read = only(tmp_path / "mlruns")
    metric, setting = read.files
    assert metric.facts.metrics["train_loss"].count == 9 and metric.epochs[0].time.its == pytest.approx(2.0)
    assert setting.facts.settings["batch_size"][0].value == 64


def test_a_folder_without_logs_and_a_file_that_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no log in this folder"):
        only(tmp_path)
    (tmp_path / "model.bin").write_bytes(bytes(range(256)) * 40)
    with pytest.raises(UsageError, match="neither text nor a known log"):
        only(tmp_path / "model.bin")
    with pytest.raises(UsageError, match="no such file"):
        only(tmp_path / "absent.log")
