"""The script sees no difference: the same output, warnings from the same places, the same tracebacks and pickles."""

from __future__ import annotations

import collections
import os
import pickle
from pathlib import Path

import pytest

from flatout.probe.identity import ByIdentity
from flatout.probe.open_files import MOST_KEPT, count
from tests.probe.parts import SCRIPTS
from tests.probe.recorded import run_bare, run_probed


@pytest.mark.slow
def test_output_warnings_tracebacks_pickles_and_graphs_are_those_of_the_bare_script(tmp_path: Path) -> None:
    source = (SCRIPTS / "noticing.py").read_text()
    bare, probed = run_bare(tmp_path, source), run_probed(tmp_path, source)
    assert bare.code == probed.code == 0, probed.err[-3000:]
    assert probed.out == bare.out
    assert "flatout" not in bare.out and "True\n" in bare.out
    assert probed.err == bare.err
    assert "ValueError: collate" in bare.err and bare.err.count("UserWarning") > 12
    assert probed.faults() == []
    assert probed.run is not None
    assert [process.info.get("not_patched") for process in probed.run.processes] == [{}]
    # It is all recorded nevertheless, from loaders that say they are equal to each other.
    counts = probed.counts()
    assert counts["BATCH_WAIT"] == 9
    assert counts["OPTIMIZER"] == 9 + 1  # and one clipping
    assert counts["FORWARD"] > 20


TRACED = """
    import warnings
    warnings.simplefilter("ignore")  # some versions say that it is deprecated
    import torch
    from torch import fx, nn
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.turn, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4, 2)
        def forward(self, x):
            return self.last(self.turn(x).to("cpu").relu().mean((2, 3)))
    def kinds(graph):
        return [node.kind() for node in graph.nodes()]
    pictures = torch.ones(2, 3, 8, 8)
    print(kinds(torch.jit.trace(Net(), pictures).inlined_graph))  # it compares with a graph of its own
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        net(pictures).sum().backward()
        optimizer.step()
        print(kinds(torch.jit.trace(net, pictures).inlined_graph), len(fx.symbolic_trace(net).graph.nodes))
        one = torch.func.grad(lambda x: net(x).sum())(pictures)
        print(torch.func.vmap(torch.func.grad(lambda x: net(x[None]).sum()))(pictures).shape, one.shape)
"""


@pytest.mark.slow
@pytest.mark.parametrize("device", [False, True], ids=["without a device", "with a device's hooks"])
def test_graphs_that_torch_traces_are_those_of_the_bare_script(tmp_path: Path, device: bool) -> None:
    environment = {"FLATOUT_DEVICE_HOOKS": "1"} if device else {}
    bare, probed = run_bare(tmp_path, TRACED), run_probed(tmp_path, TRACED, env=environment)
    assert bare.code == probed.code == 0, probed.err[-3000:]
    assert (probed.out, probed.faults()) == (bare.out, [])
    assert probed.counts()["BACKWARD"] == 3


@pytest.mark.usefixtures("without_coverage")
@pytest.mark.slow
def test_functions_of_c_that_are_stood_in_for_pickle_as_themselves(tmp_path: Path) -> None:
    source = """
        import multiprocessing, os, pickle, torch
        if __name__ == "__main__":
            assert pickle.loads(pickle.dumps(os._exit)) is os._exit
            print(pickle.dumps([os._exit, print]).hex())
            child = multiprocessing.get_context("spawn").Process(target=os._exit, args=(7,))
            child.start()
            child.join()
            print(child.exitcode)
    """
    probed = run_probed(tmp_path, source)
    assert probed.code == 0, probed.err
    functions, code = probed.out.split()
    assert pickle.loads(bytes.fromhex(functions)) == [os._exit, print]
    assert code == "7"


def test_what_is_known_of_an_object_is_found_by_identity_and_forgotten_with_it() -> None:
    class Equal:
        def __eq__(self, other: object) -> bool:
            return True

    known = ByIdentity()
    first, second = Equal(), Equal()
    known[first] = "first"
    assert known.get(second) is None and known[first] == "first"
    assert known.setdefault(second, "second") == "second"
    del first
    assert [known[thing] for thing in known] == ["second"]


def test_counts_of_names_stay_small_and_keep_the_frequent_ones() -> None:
    counter: collections.Counter[str] = collections.Counter()
    for number in range(20 * MOST_KEPT):
        count(counter, f"/once/{number}")
        count(counter, "/often")
    assert len(counter) <= MOST_KEPT
    assert counter["/often"] == 20 * MOST_KEPT


COUNTING = """
    import collections, torch
    from torch.overrides import TorchFunctionMode
    from torch.utils.data import DataLoader, TensorDataset
    calls = collections.Counter()
    class Counting(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            calls[getattr(function, "__name__", "?")] += 1
            return function(*args, **kwargs or {})
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    rows = TensorDataset(torch.ones(32, 4))
    with Counting():
        for batch, in DataLoader(rows, 4):
            optimizer.zero_grad()
            net(batch).sum().backward()
            optimizer.step()
    print(sorted(calls.items()))
"""


@pytest.mark.slow
def test_a_function_mode_of_the_users_sees_its_own_calls_only(tmp_path: Path) -> None:
    bare, probed = run_bare(tmp_path, COUNTING), run_probed(tmp_path, COUNTING)
    assert bare.out == probed.out and "backward" in bare.out
    assert probed.counts()["FORWARD"] == 8
