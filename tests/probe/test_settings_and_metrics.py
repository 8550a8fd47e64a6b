"""What a training is set to, and the numbers that it logs: noted without a change of either."""

from __future__ import annotations

import pytest

from flatout.measure.metrics import Metrics, read_metrics
from flatout.probe.metrics import _number
from tests.probe.recorded import run_probed

TRAIN = """
    import torch
    from torch import nn
    from torch.utils.tensorboard import SummaryWriter
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 7))
    net = net.to(memory_format=torch.channels_last)
    enter = torch.autocast.__enter__
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    writer = SummaryWriter("board")
    with torch.autocast("cpu", enabled=False):
        net(torch.rand(2, 3, 8, 8))
    for step in range(5):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = net(torch.rand(2, 3, 8, 8)).float().logsumexp(1).mean()
        loss.backward()
        optimizer.step()
        writer.add_scalar("loss/train", 2.0 - step / 10, step)
        writer.add_scalar("loss/val", torch.tensor(3.5), global_step=step)
        writer.add_scalar("val_accuracy", 12.5, step)
        writer.add_scalar("test_loss", torch.tensor(7.0, dtype=torch.bfloat16), step)
    print(torch.autocast.__enter__ is not enter, torch.autocast.__enter__.__module__)
"""


@pytest.mark.slow
def test_precision_layout_and_outputs_are_noted_once_and_metrics_as_they_are_logged(tmp_path):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    probed = run_probed(tmp_path, TRAIN)
    assert probed.code == 0, probed.err
    assert probed.faults() == []
    noted = probed.main.info
    assert (noted["autocast"], noted["param_dtype"], noted["compiled"]) == ("bfloat16", "float32", False)
    assert (noted["convolutions"], noted["channels_last"], noted["outputs"]) == (2, True, 7)
    # torch's own method is back after the first use.
    assert probed.out.split() == ["True", "torch.amp.autocast_mode"]
    assert read_metrics(probed.main) == Metrics(train_loss=pytest.approx(1.6), val_loss=3.5, val_accuracy=0.125)


@pytest.mark.slow
def test_a_model_that_comes_as_it_is_has_no_settings(tmp_path):
    source = """
        import torch
        net = torch.nn.GRU(3, 4).double()
        for _ in range(3):
            net(torch.rand(2, 1, 3).double())[0].sum().backward()
    """
    noted = run_probed(tmp_path, source).main.info
    assert (noted["autocast"], noted["convolutions"], noted["outputs"], noted["param_dtype"]) == (
        None,
        None,
        None,
        "float64",
    )


class Odd(float):
    """A number that cannot be read."""

    def __float__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "number"),
    [(2, 2.0), (0.5, 0.5), (True, None), ("0.5", None), (None, None), (Odd(1.0), None), ([1.0], None)],
)
def test_only_what_is_a_number_already_is_a_metric(value, number):
    assert _number(value) == number


@pytest.mark.slow
def test_a_model_that_cannot_be_asked_is_recorded_all_the_same(tmp_path):
    source = """
        import torch
        class Shy(torch.nn.Linear):
            def parameters(self, recurse=True):
                if seen:
                    raise RuntimeError("not now")
                return super().parameters(recurse)
        seen = []
        net = Shy(3, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        seen.append(True)
        for _ in range(5):
            net(torch.rand(2, 3)).sum().backward()
            optimizer.step()
    """
    probed = run_probed(tmp_path, source)
    assert probed.code == 0 and probed.faults() == []
    assert probed.main.info["param_dtype"] is None and probed.counts()["BACKWARD"] == 5
