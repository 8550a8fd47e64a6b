"""Processes of every kind below a recorded command, and how they may end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.probe import events
from flatout.record import of_kinds
from tests.machine.trees import gone, wait_for
from tests.probe.parts import SCRIPTS, importing
from tests.probe.recorded import Recorded, new_run_folder, probed_env, read_back, run_bare, run_probed, written

START = """
import os, sys, time, torch
from torch.utils.data import DataLoader, Dataset
class Points(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return torch.full((4,), float(index))
torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
def train(workers=0):
    for points in DataLoader(Points(), 4, num_workers=workers):
        loss = net(points).sum()
        loss.backward()
        print(loss.item().hex(), flush=True)
"""


def test_a_process_without_torch_is_announced_and_keeps_no_events(tmp_path: Path) -> None:
    source = """
    import subprocess, sys
    subprocess.run([sys.executable, "-c", "print('hello')"], check=True)
    """
    ran = run_probed(tmp_path, source)
    assert ran.out == "hello\n"
    assert ran.run is not None
    assert [process.info["torch"] for process in ran.run.processes] == [None, None]
    assert [len(process.events) for process in ran.run.processes] == [0, 0]
    assert ran.run.processes[1].ppid == ran.run.processes[0].pid
    assert list((ran.run.path / "processes").glob("*.events")) == []
    assert all(process.end_ns is not None for process in ran.run.processes)


@pytest.mark.slow
def test_a_fork_beside_threads_that_hold_locks_neither_hangs_nor_stops_the_sampler(tmp_path: Path) -> None:
    source = (
        START
        + """
import threading
stop = threading.Event()
busy = [threading.Thread(target=lambda: [print("", end="") or time.sleep(0.001) for _ in iter(stop.is_set, True)])]
busy[0].start()
train()
for _ in range(10):
    child = os.fork()
    if child == 0:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
train()
sampler, samples = sys.modules.get("_flatout_probe.stacks"), []
if sampler:
    sample = sampler._Sampler.sample
    sampler._Sampler.sample = lambda self, ident: samples.append(ident) or sample(self, ident)
marker = time.monotonic_ns()
while sampler and len(samples) < 4 and time.monotonic_ns() - marker < 60e9:
    time.sleep(0.01)
stop.set()
busy[0].join()
sys.stderr.write(str(marker))
"""
    )
    bare, probed = run_bare(tmp_path, source), run_probed(tmp_path, source)
    assert (bare.code, probed.code) == (0, 0), probed.err
    assert probed.out == bare.out
    assert probed.faults() == []
    samples = probed.main.of_kinds(events.STACK)
    assert (samples["start"] > int(probed.err)).sum() >= 2
    assert len(probed.run.processes) == 11


@pytest.mark.slow
def test_a_script_that_becomes_a_daemon_is_recorded_where_it_goes_on(tmp_path: Path) -> None:
    source = (
        START
        + """
train()
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.chdir("/")
train()
open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
"""
    )
    done = tmp_path / "done"
    ran = run_probed(tmp_path, source, str(done))
    assert ran.code == 0, ran.err
    wait_for(done.exists)
    pid = int(done.read_text())
    assert ran.run is not None
    wait_for(lambda: gone(pid))
    processes = {process.pid: process for process in read_back(ran.run.path).processes}
    assert len(processes) == 3
    assert len(processes[pid].of_kinds(events.BACKWARD)) == 4
    assert processes[pid].end_ns is not None
    assert [len(p.of_kinds(events.BACKWARD)) for p in processes.values() if p.pid != pid] == [4, 0]


@pytest.mark.slow
def test_a_killed_worker_fails_the_training_as_without_the_probe_and_its_events_stay(tmp_path: Path) -> None:
    source = (
        START.replace("return torch.full", "time.sleep(0.2 if index == 15 else 0); return torch.full")
        + """
import signal, multiprocessing
loader = iter(DataLoader(Points(), 4, num_workers=1))
for number in range(4):
    if number == 3:  # the third batch has come: what the worker noted of the first two is in the file
        for child in multiprocessing.active_children():
            os.kill(child.pid, signal.SIGKILL)
        time.sleep(60)  # torch's handler of SIGCHLD ends this
    net(next(loader)).sum().backward()
"""
    )
    bare, probed = run_bare(tmp_path, source), run_probed(tmp_path, source)
    assert bare.code == probed.code == 1
    last = [re.sub(r"pid \d+", "pid", ran.err.splitlines()[-1]) for ran in (bare, probed)]
    assert last[0] == last[1]
    assert "killed by signal" in last[0]
    (worker,) = probed.workers
    assert worker.end_ns is None
    assert len(of_kinds(worker.events, events.FETCH)) >= 2
    assert (worker.events["kind"] > 0).all()
    assert (worker.events["start"] > 0).all()
    assert "killed by signal" in probed.main.info["exit"]["exception"]


RAISING = {
    "in the data set": START.replace("        return torch.full", "        raise ValueError('mine')\n        #")
    + "train()\n",
    "in the loss": START.replace("loss.backward()", "raise KeyError('mine')") + "train()\n",
    "in a hook of backward": START
    + "def hook(grad):\n    raise RuntimeError('mine')\nnet.weight.register_hook(hook)\ntrain()\n",
    "as an exit": START + "train()\nsys.exit(3)\n",
}


def own_frames(ran: Recorded) -> list[str]:
    """The frames of a traceback that lie in the script, each with its line of code."""
    lines = ran.err.splitlines()
    return [
        line.strip() + " | " + lines[number + 1].strip() for number, line in enumerate(lines) if "script.py" in line
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "place",
    [
        "in the data set",
        pytest.param("in the loss", marks=pytest.mark.slow),
        pytest.param("in a hook of backward", marks=pytest.mark.slow),
        pytest.param("as an exit", marks=pytest.mark.slow),
    ],
)
def test_an_exception_of_the_script_has_the_same_frames_message_and_exit_code(tmp_path: Path, place: str) -> None:
    bare, probed = run_bare(tmp_path, RAISING[place]), run_probed(tmp_path, RAISING[place])
    assert bare.code == probed.code != 0
    assert own_frames(probed) == own_frames(bare)
    assert bare.err.splitlines()[-1:] == probed.err.splitlines()[-1:]
    assert probed.out == bare.out
    if place != "as an exit":
        assert "mine" in probed.main.info["exit"]["exception"]
    assert probed.faults() == []


@pytest.mark.slow
def test_a_forked_worker_counts_the_files_that_it_opened_itself(tmp_path: Path) -> None:
    source = START.replace("return torch.full", "open(sys.argv[1]).close(); return torch.full")
    source += "for _ in range(300):\n    open(sys.argv[2]).close()\ntrain(1)\n"
    mine, parents = tmp_path / "worker", tmp_path / "parent"
    for folder in (mine, parents):
        folder.mkdir()
        (folder / "data").write_text("x")
    ran = run_probed(tmp_path, source, str(mine / "data"), str(parents / "data"))
    assert ran.code == 0, ran.err
    (worker,) = ran.workers
    assert ran.main.names.files["dirs"][str(parents)] == 300
    assert worker.names.files["dirs"][str(mine)] == 16
    assert str(parents) not in worker.names.files["dirs"]


@pytest.mark.slow
def test_transforms_that_are_modules_are_no_forward_passes(tmp_path: Path) -> None:
    pytest.importorskip("torchvision", reason="torchvision is not installed")
    source = START.replace("return torch.full((4,), float(index))", "return crop(torch.ones(3, 8, 8)).flatten()[:4]")
    source += "from torchvision.transforms import v2\ncrop = v2.Compose([v2.CenterCrop(4)])\ntrain()\ntrain(1)\n"
    ran = run_probed(tmp_path, source)
    assert ran.code == 0, ran.err
    assert len(ran.main.of_kinds(events.FORWARD)) == len(ran.main.of_kinds(events.BACKWARD)) == 8
    assert all(len(worker.of_kinds(events.FORWARD)) == 0 for worker in ran.workers)


@pytest.mark.slow
def test_nothing_that_torch_saves_or_pickles_needs_the_probe_to_be_loaded(tmp_path: Path) -> None:
    source = """
    import copy, pickle, torch
    from learning import Net, Points, seed, train_step
    from torch.utils.data import DataLoader
    seed()
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    loader = DataLoader(Points(24), batch_size=4, shuffle=True, num_workers=0)
    iterator = iter(loader)
    for batch in iterator:
        train_step(model, optimizer, batch)
        scheduler.step()
    torch.save({"model": model, "copy": copy.deepcopy(model), "optimizer": copy.deepcopy(optimizer)}, "all.pt")
    torch.save(optimizer.state_dict(), "state.pt")
    with open("rest.pkl", "wb") as file:
        functions = [print, torch.save, torch.nn.utils.clip_grad_norm_]
        pickle.dump([loader, copy.deepcopy(loader), Net, optimizer, functions], file)
    """
    ran = run_probed(tmp_path, source, env=importing(None))
    assert ran.code == 0, ran.err
    loading = """
    import pickle, sys
    sys.modules["flatout"] = sys.modules["_flatout_probe"] = None
    import torch
    saved = torch.load("all.pt", weights_only=False)
    torch.load("state.pt")
    loader, twin, net, *_ = pickle.load(open("rest.pkl", "rb"))
    assert len(list(loader)) == len(list(twin)) == 6
    for model in saved["model"], saved["copy"]:
        model(torch.ones(1, 4)).sum().backward()
    saved["optimizer"].step()
    print(net.__name__)
    """
    bare = run_bare(tmp_path, loading, env=importing(None))
    assert (bare.code, bare.out) == (0, "Net\n"), bare.err
    for name in ("all.pt", "state.pt", "rest.pkl"):
        assert b"flatout" not in (tmp_path / name).read_bytes()


@pytest.mark.slow
def test_the_script_sees_the_search_path_that_it_would_see_without_the_probe(tmp_path: Path) -> None:
    source = "import json, sys; print(json.dumps([sys.path, sorted(m for m in sys.modules if 'custom' in m)]))"
    own = tmp_path / "own"
    own.mkdir()
    env = {"PYTHONPATH": f"{own}{os.pathsep}{SCRIPTS}"}
    bare, probed = run_bare(tmp_path, source, env=env), run_probed(tmp_path, source, env=env)
    assert json.loads(probed.out)[0] == json.loads(bare.out)[0]


def test_a_sitecustomize_that_fails_fails_as_it_would_without_the_probe(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("raise ZeroDivisionError('theirs')\n")
    ran = [how(tmp_path, "print('went on')", env={"PYTHONPATH": str(own)}) for how in (run_bare, run_probed)]
    assert [r.code for r in ran] == [0, 0]
    assert [r.out for r in ran] == ["went on\n"] * 2
    assert ran[0].err.splitlines()[-1] == ran[1].err.splitlines()[-1]
    assert "theirs" in ran[1].err


@pytest.mark.usefixtures("without_coverage")  # it imports some of them before the script
@pytest.mark.parametrize("name", ["resource", "select", "queue"])
def test_a_script_imports_its_own_module_in_place_of_one_that_the_probe_has_imported(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("whose = 'mine'\n")
    (tmp_path / "json").mkdir()  # no package: Python prefers its own
    script = tmp_path / "script.py"
    script.write_text(f"import json, {name}; print(getattr({name}, 'whose', 'its own'), json.dumps([]))\n")
    probed = {**os.environ, **probed_env(new_run_folder(tmp_path), {})}
    for command in ([str(script)], ["-m", "script"]):
        printed = [
            subprocess.run([sys.executable, *command], env=env, cwd=tmp_path, capture_output=True, text=True).stdout
            for env in (dict(os.environ), probed)
        ]
        # Some Pythons have these modules built in, and prefer them with and without the probe.
        built_in = name in sys.builtin_module_names
        assert printed == [("its own" if built_in else "mine") + " []\n"] * 2


@pytest.mark.slow
def test_the_stop_command_ends_the_record_and_not_the_training(tmp_path: Path) -> None:
    source = (
        START
        + """
train(1)
with open(os.environ["FLATOUT_RUN"] + "/control", "r+b") as control:
    control.write(bytes([1]))
time.sleep(0.05)
for _ in range(3):
    time.sleep(0.05)
    train(1)
"""
    )
    ran = run_probed(tmp_path, source)
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == 16
    # The command is obeyed at a backward pass: one may still be recorded.
    assert 4 <= len(ran.main.of_kinds(events.BACKWARD)) <= 5
    assert len(ran.workers) <= 2


@pytest.mark.slow
def test_records_of_the_main_process_and_its_workers_survive_kill_9(tmp_path: Path) -> None:
    run, script = new_run_folder(tmp_path), tmp_path / "script.py"
    script.write_text(START + "while True:\n    train(2)\n    time.sleep(0.02)\n")
    with subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "OMP_NUM_THREADS": "1", **probed_env(run, {})},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        seen = [child.stdout.readline() for _ in range(10)]
        # Events are packed every 75 ms at most, as far as the machine lets the sampler run: the latest may be lost.
        wait_for(lambda: all(sum(written(run, kind)) >= 10 for kind in (events.BACKWARD, events.FETCH)))
        os.killpg(child.pid, signal.SIGKILL)
    assert all(seen)
    record = read_back(run)
    main = max(record.processes, key=lambda process: len(process.of_kinds(events.BACKWARD)))
    assert len(main.of_kinds(events.BACKWARD)) >= 10
    assert main.end_ns is None
    workers = [process for process in record.processes if process.worker is not None]
    assert sum(len(worker.of_kinds(events.FETCH)) for worker in workers) >= 10
    for process in record.processes:
        assert (process.events["kind"] > 0).all()
        assert (process.events["start"] > 0).all()
        rest = (run / "processes" / f"{process.key}.events").open("rb")
        with rest:
            rest.seek(4096 + process.events.nbytes)
            assert not any(rest.read(1 << 16)), "events behind a gap"
