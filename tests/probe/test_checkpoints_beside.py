"""Checkpoints in a thread, and scripts that rename, list, look at or load what they have just written."""

from __future__ import annotations

import collections
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from flatout.probe.injections.checkpoint_thread import _on_device, _on_host
from flatout.runner.command import injecting_environment
from tests.probe.test_injections import trained

SCRIPT = """
import glob, json, os, pathlib, shutil, subprocess, time
import torch
from torch import nn

folder = pathlib.Path(__file__).parent / "saved"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir()
os.chdir(folder)
net = nn.Linear(400, 400)
weight, seen = net.weight.detach(), []

slow = torch.serialization._save  # the writing itself, in the thread


def written_slowly(*args, **kwargs):
    time.sleep(0.2)
    return slow(*args, **kwargs)


torch.serialization._save = written_slowly
for step in range(3):
    weight.fill_(step)
    torch.save(net.state_dict(), "last.pt.tmp")
    os.replace("last.pt.tmp", "last.pt")
    weight.fill_(-1)  # the copy is of before
seen.append(float(torch.load("last.pt")["weight"][0, 0]))
seen.append(sorted(os.listdir(".")))

weight.fill_(7)
torch.save(net.state_dict(), pathlib.Path("a.tmp"))
pathlib.Path("a.tmp").rename("a.pt")
pathlib.Path("a.pt").rename("b.pt")
seen.append(float(torch.load("b.pt")["weight"][0, 0]))

for step in range(4):  # the last two are kept
    torch.save({"step": step}, "epoch_%d.pt" % step)
    for old in sorted(glob.glob("epoch_*.pt"))[:-2]:
        os.remove(old)
seen.append(sorted(glob.glob("epoch_*.pt")))

torch.save({"step": 9}, folder / "size.pt")
seen.append(os.path.getsize("size.pt") > 0)
torch.save({"step": 10}, "copied.pt")
shutil.copy("copied.pt", "copy.pt")
seen.append(torch.load("copy.pt")["step"])
torch.save({"step": 11}, "moved.tmp")
shutil.move("moved.tmp", "moved.pt")
seen.append(torch.load("moved.pt")["step"])
torch.save({"step": 12}, "replaced.tmp")
os.replace("last.pt", "replaced.tmp")  # what is to be written is overwritten
seen.append(float(torch.load("replaced.tmp")["weight"][0, 0]))
with open("closed.tmp", "wb") as file:
    torch.save({"step": 13}, file)
    file.flush()
    os.fsync(file.fileno())
os.replace("closed.tmp", "closed.pt")
torch.save({"step": 14}, "forked.pt")
if not os.fork():
    os._exit(torch.load("forked.pt")["step"])
seen.append(os.waitstatus_to_exitcode(os.wait()[1]))
torch.save({"step": 15}, "listed.pt")
seen.append(subprocess.run(["stat", "--format=%s", "listed.pt"], capture_output=True, text=True).stdout != "")
torch.save({"step": 16}, "shown.pt")
seen.append(os.system("test -s shown.pt"))
torch.save(net.state_dict(), "end.tmp")
os.replace("end.tmp", "end.pt")
print(json.dumps(seen))
"""


@pytest.mark.slow
def test_a_script_finds_what_it_would_find_without_the_thread(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    plain, _ = trained(script)
    names = sorted(path.name for path in (tmp_path / "saved").iterdir())
    beside, said = trained(script, checkpoint_beside=True)
    assert "could not be set" not in said
    assert beside == plain
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == names and "end.pt" in names


@pytest.mark.parametrize(
    "end",
    [
        "os._exit(3)",
        "os.kill(os.getpid(), 15)",
        "os.execv('/bin/true', ['true'])",
        "import signal; signal.raise_signal(15)",
        "import signal; signal.setitimer(signal.ITIMER_REAL, 0.001); signal.pause()",
    ],
)
def test_a_process_that_ends_itself_has_written_before(tmp_path: Path, end: str) -> None:
    (tmp_path / "train.py").write_text(
        f"import os, torch\ntorch.save({{'a': torch.zeros(9_000_000)}}, 'a.tmp')\nos.replace('a.tmp', 'a.pt')\n{end}\n"
    )
    environment: Any = injecting_environment() | {"FLATOUT_SETTINGS": '{"checkpoint_beside": true}'}
    subprocess.run([sys.executable, "train.py"], env=environment, cwd=tmp_path, check=False)
    assert torch.load(tmp_path / "a.pt")["a"].numel() == 9_000_000 and not (tmp_path / "a.tmp").exists()


FAILING = """
import resource, signal, torch
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
torch.save({"step": 0}, "first.pt")
resource.setrlimit(resource.RLIMIT_FSIZE, (1000000, 1000000))
torch.save({"step": 1, "weights": torch.zeros(1000000)}, "second.pt")
if %r:
    torch.save({"step": 2}, "first.pt")
"""


OWN_PICKLER = """
import pickle, types
from pickle import *

class Pickler(pickle.Pickler):
    def reducer_override(self, obj):
        return (int, (7,)) if isinstance(obj, types.FunctionType) and obj.__name__ == "<lambda>" else NotImplemented
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "save",
    [
        'torch.save({"step": 1}, "missing/second.pt")',
        'torch.save({"step": lambda: 1}, "a.pt")',
        'torch.save({}, ".")',
        'import own; torch.save({"step": lambda: 1}, "a.pt", pickle_module=own); print("raised nothing")',
    ],
)
def test_what_can_be_told_at_once_raises_where_it_is_saved(tmp_path: Path, save: str) -> None:
    (tmp_path / "train.py").write_text(
        f"import torch\ntry:\n    {save}\nexcept Exception as error:\n    print('raised', type(error).__name__)\n"
    )
    (tmp_path / "own.py").write_text(OWN_PICKLER)
    said = []
    for settings in ("{}", '{"checkpoint_beside": true}'):
        environment: Any = injecting_environment() | {"FLATOUT_SETTINGS": settings}
        done = subprocess.run(
            [sys.executable, "train.py"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        said.append(done.stdout)
    assert said[0] == said[1] and "raised" in said[0]


@pytest.mark.parametrize("again", [True, False], ids=["at the next save", "at the end"])
def test_a_failed_write_is_told(tmp_path: Path, again: bool) -> None:
    (tmp_path / "train.py").write_text(FAILING % again)
    environment: Any = injecting_environment() | {"FLATOUT_SETTINGS": '{"checkpoint_beside": true}'}
    done = subprocess.run(
        [sys.executable, "train.py"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ("flatout: a checkpoint was not written: " in done.stderr) is not again, done.stderr
    assert (done.returncode != 0) is again


def test_copies_on_the_host_keep_types_or_are_not_made() -> None:
    """Without a GPU: the copy itself, of tensors that lie on the CPU."""
    state = collections.OrderedDict(weight=torch.ones(2), rows=[torch.zeros(1), 3], none=None)
    made = _on_host({"model": state, "epoch": 3})
    assert made is not None and type(made["model"]) is collections.OrderedDict
    assert torch.equal(made["model"]["weight"], state["weight"]) and made["model"]["rows"][1] == 3
    assert made["model"]["weight"].data_ptr() != state["weight"].data_ptr()
    assert _on_host({"model": torch.nn.Linear(1, 1)}) is None
    assert _on_host([torch.nn.Parameter(torch.ones(1))]) is None
    assert _on_device({"model": torch.empty(1, device="meta")}) and not _on_device(state)
