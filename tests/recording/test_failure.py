"""Which exception a recording that failed quotes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flatout.runner.failure import explain
from flatout.runner.live import Live
from flatout.runner.session import Outcome


def process(run: Path, pid: int, ppid: int, end_ns: int, traceback: list[str], **info: Any) -> None:
    (run / "processes").mkdir(exist_ok=True)
    exit_ = {"code": 1, "exception": traceback[-1], "traceback": traceback[-12:]}
    fields = {"pid": pid, "ppid": ppid, "end_ns": end_ns, "exit": exit_, "executable": "python", **info}
    (run / "processes" / f"{pid}-1.json").write_text(json.dumps(fields))


def said(run: Path) -> str:
    return explain(Outcome(run, "failed", 1, Live()))[0]


FRAME = ['  File "train.py", line 9, in <module>', "    main()"]
TORCHRUN = [
    "Traceback (most recent call last):",
    '  File "torch/distributed/run.py", line 900, in main',
    "    raise ChildFailedError(",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "============================================================",
    "train.py FAILED",
    "------------------------------------------------------------",
    "============================================================",
]


def test_the_rank_that_failed_is_quoted_and_not_its_launcher(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, 900, TORCHRUN)
    process(tmp_path, 11, 10, 500, [*FRAME, "ValueError: no pictures in /data"], rank=0)
    process(tmp_path, 12, 10, 700, [*FRAME, "RuntimeError: connection closed by peer"], rank=1)
    assert "ValueError: no pictures in /data (train.py:9)" in said(tmp_path)


def test_a_launcher_alone_is_quoted_by_the_name_of_its_exception(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, 900, TORCHRUN)
    assert "errors.ChildFailedError:  … (torch/distributed/run.py:900)" in said(tmp_path)


def test_a_message_of_several_lines_is_quoted_by_its_first_one(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, 900, [*FRAME, "RuntimeError: sizes do not match", "expected: 3", "  got 4", "hint"])
    assert "RuntimeError: sizes do not match … (train.py:9)" in said(tmp_path)


def test_a_damaged_file_of_a_process_is_passed_over(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, 900, [*FRAME, "ValueError: x"])
    for number, text in enumerate(('{"exit": 5, "end_ns": NaN}', "[", '{"exit": {"exception": [1]}}', "5")):
        (tmp_path / "processes" / f"2{number}-1.json").write_text(text)
    assert "ValueError: x (train.py:9)" in said(tmp_path)


def test_it_says_how_long_it_waited_for_a_first_step(tmp_path: Path) -> None:
    message, code = explain(Outcome(tmp_path, "no_steps", None, Live(), waited_s=90.0))
    assert message.startswith("no training step was seen within 1 min 30 s: ") and code == 2
