"""What ``flatout apply`` says at the end of programs that train, and of those that do not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def applied(folder: Path, code: str, *more: str) -> list[str]:
    """What ``flatout apply`` says of a script."""
    (folder / "script.py").write_text(code)
    words = [sys.executable, "-m", "flatout", "apply", "--set", "threads=1", "--set", "num_workers=1", "--", *more]
    ran = subprocess.run([*words, sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert "Traceback" not in ran.stderr
    return [line for line in ran.stderr.splitlines() if line.startswith("flatout: ")]


SET = "flatout: set threads=1"
LOST = "flatout: num_workers had no effect: nothing in this training took it"


def test_without_an_optimizer_it_is_said_what_was_set_too(tmp_path: Path) -> None:
    nothing = "flatout: torch was not imported: threads, num_workers had no effect"
    assert applied(tmp_path, "print(1)") == [nothing]
    by_hand = "import torch\nw = torch.ones(2, requires_grad=True)\nw.sum().backward()\nw.data -= w.grad\n"
    assert applied(tmp_path, by_hand) == [SET, LOST]
    assert applied(tmp_path, by_hand + "import os\nos._exit(0)") == [SET, LOST]
    spawned = "nothing in this process took it, and whether the processes that it spawned did is not known"
    spawning = by_hand + "import multiprocessing.popen_spawn_posix"
    assert applied(tmp_path, spawning) == [SET, f"flatout: num_workers: {spawned}"]


def test_several_trainings_of_one_command_name_themselves(tmp_path: Path) -> None:
    twice = "import subprocess, sys\nfor _ in range(2): subprocess.run([sys.executable, 'train.py'])"
    (tmp_path / "train.py").write_text("import torch\ntorch.ones(2, requires_grad=True).sum().backward()\n")
    said = applied(tmp_path, twice)
    named = [re.sub(r"\d+\)$", "N)", line) for line in said]
    assert named == [f"{SET} (train.py, process N)", f"{LOST} (train.py, process N)"] * 2


HOOKED = """
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, register_optimizer_step_post_hook
seen = []
register_optimizer_step_post_hook(lambda *_: seen.append("all"))
weights = [torch.ones(2, requires_grad=True) for _ in range(2)]
optimizers = [torch.optim.SGD([w], 0.1) for w in weights]
for optimizer in optimizers:
    optimizer.register_step_post_hook(lambda *_: seen.append("own"))
for _ in range(3):
    for w, optimizer in zip(weights, optimizers):
        w.sum().backward()
        optimizer.step()
print(len(seen), len(_global_optimizer_post_hooks))
"""


def test_a_training_with_hooks_of_its_own_and_several_optimizers_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "hooked.py"
    path.write_text(HOOKED)
    words = [sys.executable, "-m", "flatout", "apply", "--set", "threads=1", "--", sys.executable, str(path)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("12 1\n", "flatout: set threads=1\n")


def test_a_launcher_and_other_ranks_say_nothing(tmp_path: Path) -> None:
    step = "w = torch.ones(1, requires_grad=True); o = torch.optim.SGD([w], 0.1); w.sum().backward(); o.step()"
    for source, rank, expected in (("import torch", "0", 0), (f"import torch; {step}", "1", 0)):
        path = tmp_path / "program.py"
        path.write_text(source)
        words = [sys.executable, "-m", "flatout", "apply", "--set", "threads=1", "--", sys.executable, str(path)]
        ran = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "RANK": rank}, check=True)
        assert ran.stderr.count("flatout:") == expected, ran.stderr
