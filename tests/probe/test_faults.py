"""What goes wrong, in the probe or in the user's code, stays where it belongs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from textwrap import dedent

import pytest

from flatout.probe import events
from tests.machine.trees import wait_for
from tests.probe.recorded import new_run_folder, probed_env, read_back, run_bare, run_probed, written

pytestmark = pytest.mark.slow

TRAIN = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(torch.randn(40, 4)), 4, num_workers={workers})
    net = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step, (x,) in enumerate(loader):
        loss = net(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex(), flush=True)
    torch.save(net.state_dict(), "net.pt")
"""

BREAKAGES = {
    "emit": "REC.file.emit = REC.emit = broken",
    "names": "REC.names.text = broken; REC.names.add = broken",
    "control": "REC.control.command = broken",
    "counters": "import _flatout_probe.hooks.fetching as f; f.thread_times = broken",
    "stacks": "import _flatout_probe.stacks as s; s.describe_frame = broken",
    "publish": "REC.file.live = broken",
}


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The training without the probe."""
    return run_bare(tmp_path_factory.mktemp("bare"), TRAIN.format(workers=0))


@pytest.mark.parametrize("part", BREAKAGES)
def test_a_fault_of_the_probe_never_reaches_the_training(tmp_path, bare, part):
    breaking = f"""
    from _flatout_probe.recorder import REC
    def broken(*args, **kwargs):
        raise RuntimeError("planted in the probe")
    {BREAKAGES[part]}
    """
    source = TRAIN.format(workers=0)
    probed = run_probed(
        tmp_path, source.replace("    torch.manual_seed(0)", breaking + "\n    torch.manual_seed(0)", 1)
    )
    assert probed.code == 0, probed.err
    assert probed.out == bare.out
    assert probed.err == bare.err
    assert any("planted in the probe" in fault for fault in probed.faults())


@pytest.mark.parametrize("workers", [0, 1])
def test_an_exception_of_the_users_own_comes_out_unchanged(tmp_path, workers):
    source = f"""
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Broken(Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, index):
                raise KeyError("no such picture")
        for batch in DataLoader(Broken(), 4, num_workers={workers}):
            pass
    """
    bare, probed = run_bare(tmp_path, source), run_probed(tmp_path, source)
    assert probed.code == bare.code == 1
    assert bare.err.splitlines()[-1] == probed.err.splitlines()[-1]
    assert 'raise KeyError("no such picture")' in probed.err
    exits = [process.info["exit"] for process in probed.run.processes if (process.info["exit"] or {}).get("exception")]
    assert "no such picture" in exits[0]["exception"]


def test_records_survive_kill_9(tmp_path):
    run = new_run_folder(tmp_path)
    script = tmp_path / "script.py"
    last = "import time; step == 4 and time.sleep(600)"
    script.write_text(dedent(TRAIN.format(workers=1)).replace("flush=True)", f"flush=True); {last}"))
    with subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, **probed_env(run, {})},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        for _ in range(5):
            assert child.stdout.readline()
        # The fifth was just made: it reaches the file with the next sample of the stack.
        wait_for(lambda: 5 in written(run, events.BACKWARD))
        os.killpg(child.pid, signal.SIGKILL)
    wait_for(lambda: not _command_lines(script))
    record = read_back(run)
    trained = max(record.processes, key=lambda process: len(process.of_kinds(events.BACKWARD)))
    assert trained.end_ns is None
    assert len(trained.of_kinds(events.BACKWARD)) == 5
    assert all(trained.events["kind"] > 0)
    assert not any("cut" in problem for problem in record.problems)


def _command_lines(script):
    return subprocess.run(["pgrep", "-f", str(script)], capture_output=True).stdout.split()


MANY_STEPS = TRAIN.format(workers=0).replace("torch.randn(40, 4)", "torch.randn(40000, 4)")
MANY_STEPS = MANY_STEPS.replace("print(loss.item().hex(), flush=True)", "pass") + "    print(loss.item().hex())\n"


@pytest.fixture(scope="module")
def many_bare_steps(tmp_path_factory):
    """The training of ten thousand steps without the probe."""
    return run_bare(tmp_path_factory.mktemp("bare"), MANY_STEPS)


@pytest.mark.parametrize("blocks", ["600", "1200"])
def test_a_full_disk_loses_events_and_not_the_training(tmp_path, many_bare_steps, blocks):
    """The file-size limit stands for the disk: both answer a reservation of space with an error."""
    limit = f"    import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({blocks} << 10, {blocks} << 10))\n"
    probed = run_probed(tmp_path, limit + MANY_STEPS)
    assert probed.code == 0, probed.err
    assert probed.out == many_bare_steps.out


def test_the_users_sitecustomize_and_pythonpath_are_kept(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins; builtins.mine = 'ran'\n")
    (own / "wanted.py").write_text("value = 7\n")
    source = "import sys, wanted; print(mine, wanted.value, any('inject' in entry for entry in sys.path))"
    probed = run_probed(tmp_path, source, env={"PYTHONPATH": str(own)})
    assert probed.out.split() == ["ran", "7", "False"], probed.err


def test_forked_children_and_a_changed_folder_leave_the_parents_record_whole(tmp_path):
    source = (
        TRAIN.format(workers=0)
        + """
    import os
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    pid = os.fork()
    if pid == 0:
        for (x,) in loader:
            net(x).sum().backward()
        os._exit(0)
    os.waitpid(pid, 0)
    for (x,) in loader:
        net(x).sum().backward()
    """
    )
    probed = run_probed(tmp_path, source)
    assert probed.code == 0, probed.err
    assert probed.faults() == []
    backwards = sorted(probed.counts(process)["BACKWARD"] for process in probed.run.processes)
    assert backwards == [10, 20]
