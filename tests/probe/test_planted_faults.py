"""Whatever breaks inside the probe, the training computes what it would have computed, and the record says so."""

from __future__ import annotations

import pytest

from tests.probe import recorded
from tests.probe.parts import SCRIPTS, importing, told
from tests.probe.recorded import Recorded

pytestmark = pytest.mark.slow

PIECES = [
    "emit",
    "names.text",
    "command",
    "live",
    "describe",
    "samples_in",
    "user_line",
    "is_grad_enabled",
    "thread_times",
    "process_io",
    "batch_bits",
    "device",
    "stack sampler",
]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder, source = tmp_path_factory.mktemp("broken"), (SCRIPTS / "planted.py").read_text()
    return recorded.run_probed(folder, source, "0", env=importing(None))


def test_the_training_ends_well_with_the_same_losses(
    tmp_path_factory: pytest.TempPathFactory, broken: Recorded
) -> None:
    source = (SCRIPTS / "planted.py").read_text()
    bare = recorded.run_bare(tmp_path_factory.mktemp("bare"), source, "0", env=importing(None))
    assert broken.code == bare.code == 0, broken.err[-3000:]
    assert len(bare.out.splitlines()) == 4 * (len(PIECES) + 1)
    assert broken.out == bare.out


@pytest.mark.parametrize("piece", PIECES)
def test_each_broken_piece_is_noted(broken: Recorded, piece: str) -> None:
    fault = told(broken)[f"fault {piece}"]
    assert fault is not None
    assert "planted in the probe" in fault


@pytest.mark.parametrize(
    "piece",
    [
        "control.command",
        "open",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("names.add", "thread_times")),
    ],
)
def test_a_fault_in_a_worker_is_noted_by_the_worker_and_the_training_goes_on(
    tmp_path_factory: pytest.TempPathFactory, piece: str
) -> None:
    """Forked workers inherit what is broken here, after the main process has recorded its own part."""
    breaking = {
        "control.command": "recorder.REC.control.command = worker_only(recorder.REC.control.command)",
        "names.add": "writer.NamesFile.add = worker_only(writer.NamesFile.add)",
        "thread_times": "fetching.thread_times = worker_only(fetching.thread_times)",
        "open": "recorder.EventFile = worker_only(recorder.EventFile)",
    }[piece]
    source = f"""
    import os, sys, time, torch
    from torch.utils.data import DataLoader, Dataset
    class Slow(Dataset):
        def __len__(self):
            return 12
        def __getitem__(self, index):
            time.sleep(0.05)
            return torch.full((4,), float(index))
    if "_flatout_probe" in sys.modules:
        from _flatout_probe import recorder, writer
        from _flatout_probe.hooks import fetching
        main_pid = os.getpid()
        def worker_only(function):
            def broken(*args, **kwargs):
                if os.getpid() != main_pid:
                    raise RuntimeError("planted in a worker")
                return function(*args, **kwargs)
            return broken
        {breaking}
    net = torch.nn.Linear(4, 1)
    torch.nn.init.ones_(net.weight)
    for points in DataLoader(Slow(), 4, num_workers=1):
        loss = net(points).sum()
        loss.backward()
        print((loss - net.bias.sum()).item())
    """
    ran = recorded.run_probed(tmp_path_factory.mktemp("worker"), source)
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == 3
    assert [process.pid for process in ran.run.processes if "fault" in process.info] != []
    assert "fault" not in ran.main.info
    assert all("planted in a worker" in fault for fault in ran.faults())
    assert any("the probe failed in process" in problem for problem in ran.run.problems)
