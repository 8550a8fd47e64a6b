"""What a training communicates by itself: each call once, none of those inside a backward pass."""

from __future__ import annotations

import pytest

from flatout.probe import events
from tests.probe.parts import texts
from tests.probe.recorded import run_probed

TRAIN = """
    import sys
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=0, world_size=1)
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net.weight.register_hook(lambda gradient: dist.all_reduce(gradient))  # inside the backward pass
    for step in range(4):
        net(torch.ones(2, 4)).sum().backward()
        dist.all_reduce(net.bias.grad)
        optimizer.step()
        found = [None]
        dist.all_gather_object(found, {"step": step})  # gathers sizes and bytes by itself
        assert found == [{"step": step}]
    dist.barrier()
    print(float(net.weight.sum()) != 0)
"""


@pytest.mark.slow
def test_collectives_are_seen_once_each_and_not_inside_the_backward_pass(tmp_path):
    probed = run_probed(tmp_path, TRAIN, str(tmp_path / "store"))
    assert probed.code == 0, probed.err
    assert probed.faults() == []
    assert texts(probed.main, probed.main.events, events.COLLECTIVE) == [
        *["all_reduce", "all_gather_object"] * 4,
        "barrier",
    ]
