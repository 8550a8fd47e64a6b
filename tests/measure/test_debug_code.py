"""Code made for debugging in stack samples: what counts, and its share."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.measure.build import build_view
from flatout.measure.debug_code import ASSERTIONS, CHECKS, PROFILER, kind_of
from flatout.record import load_run
from tests.record.synthetic import RunBuilder

SITE = "/venv/lib/python3.11/site-packages"


def user(source: str) -> list[object]:
    return ["/home/me/model.py", 7, "forward", source, True]


def library(path: str, function: str) -> list[object]:
    return [f"{SITE}/{path}", 1, function, "", False]


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        ([user("assert torch.isfinite(x).all()")], ASSERTIONS),
        ([library("torch/_tensor.py", "all"), user("assert (x >= 0).all(), x")], ASSERTIONS),
        ([user("if torch.isnan(loss).any():")], CHECKS),
        ([library("beartype/_check/checkmake.py", "check"), user("y = self.norm(x)")], ASSERTIONS),
        ([library("torch/autograd/profiler.py", "profile.__exit__"), user("with profile() as prof:")], PROFILER),
        ([library("torch/autograd/profiler_util.py", "EventList.table"), user("print(prof.table())")], PROFILER),
        # Every optimizer step opens such a region.
        ([library("torch/autograd/profiler.py", "record_function.__enter__"), user("optimizer.step()")], None),
        ([user("assertion = check(x)")], None),
        ([library("torch/_dynamo/convert_frame.py", "compile"), user("assert x.isfinite().all()")], None),
        ([user("x = self.norm(x)"), user("assert self.net(x) is not None")], None),
        ([], None),
    ],
)
def test_each_kind_is_known_by_its_line_or_its_package(frames: list[list[object]], kind: str | None) -> None:
    assert kind_of(frames) == kind


def test_its_share_is_that_of_the_windows_samples(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(4):
        main.step(forward_s=0.5, backward_s=0.4, optimizer_s=0.1)
    main.sample(0.3, "assert x.isfinite().all()")  # before the window
    for time_s, line in ((1.1, 8), (1.2, 9), (1.3, 9), (1.4, 0)):
        main.sample(time_s, "assert (x > 0).all()" if line else "y = self.net(x)", line or 3)
    view = build_view(load_run(run.write()))
    assert view is not None
    found = view.debug_code[ASSERTIONS]
    assert found.share == pytest.approx(0.75)
    assert found.line.line == 9
