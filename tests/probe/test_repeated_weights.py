"""Products that could be one, in graphs of backward passes as loops over samples, patches and time steps build them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402

from flatout.probe import backward_graph  # noqa: E402
from flatout.probe.gradients import names_of  # noqa: E402
from flatout.probe.repeated_weights import RepeatedWeights  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.head = nn.Linear(32, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(inputs))
        return out


NET = Net()
SAMPLES = torch.randn(12, 6)
PIXELS = nn.Conv2d(3, 5, 3, padding=1)
CELL, DECIDE = nn.GRUCell(6, 32), nn.Linear(32, 3)


def one_sample_at_a_time() -> Tensor:
    return torch.stack([NET(sample[None]).square().sum() for sample in SAMPLES]).mean()


def one_vector_at_a_time() -> Tensor:
    return torch.stack([NET(sample).square().sum() for sample in SAMPLES]).mean()


def slope_of_each_sample() -> Tensor:
    slopes = []
    for sample in SAMPLES:
        point = sample.clone().requires_grad_(True)
        slopes.append(torch.autograd.grad(NET(point[None]).sum(), point, create_graph=True)[0])
    return (torch.stack(slopes).norm(dim=1) - 1).square().mean()


def patches_in_turn() -> Tensor:
    return torch.stack([PIXELS(torch.randn(2, 3, 8, 8)).mean() for _ in range(9)]).sum()


def whole_batch() -> Tensor:
    return NET(SAMPLES).square().mean()


def two_views_of_a_batch() -> Tensor:
    return (NET(SAMPLES) - NET(SAMPLES.flip(0))).square().mean()


def recurrent() -> Tensor:
    state = torch.zeros(4, 32)
    for _ in range(20):
        state = CELL(torch.randn(4, 6), state)
    return DECIDE(state).square().mean()


def shared_block_again_and_again() -> Tensor:
    values = torch.randn(4, 32)
    for _ in range(16):
        values = values + NET.body[2](values).tanh()
    return values.square().mean()


def scored_at_each_time_step() -> Tensor:
    state, scores = torch.zeros(4, 32), []
    for _ in range(20):
        state = CELL(torch.randn(4, 6), state)
        scores.append(DECIDE(state))
    return torch.stack(scores).square().mean()


def found(loss: Tensor) -> dict[str, object] | None:
    weights = RepeatedWeights()
    weights.look(backward_graph.nodes(loss))
    return weights.described(names_of)


@pytest.mark.parametrize(
    ("make", "uses", "chain"),
    [
        (one_sample_at_a_time, 12, 1),
        (one_vector_at_a_time, 12, 1),
        (patches_in_turn, 9, 1),
    ],
)
def test_calls_on_one_piece_after_the_other_are_seen_and_timed(
    make: Callable[[], Tensor], uses: int, chain: int
) -> None:
    seen = found(make())
    assert seen is not None
    assert (seen["uses"], seen["chain"], seen["part"]) == (uses, chain, 1.0)
    assert float(str(seen["joined_s"])) > 0 and float(str(seen["apart_s"])) > 0


def test_slopes_of_single_samples_depend_on_few_others() -> None:
    seen = found(slope_of_each_sample())
    assert seen is not None
    assert seen["shape"] == [32, 32] and seen["name"] == "Net.body.2.weight"
    # Forward and back, for each sample: a path meets the weight once in each direction.
    assert int(str(seen["uses"])) >= 24 and int(str(seen["uses"])) >= 12 * int(str(seen["chain"]))


LOOPS_AS_NEEDED = [
    whole_batch,
    two_views_of_a_batch,
    recurrent,
    scored_at_each_time_step,
    shared_block_again_and_again,
]


@pytest.mark.parametrize("make", LOOPS_AS_NEEDED)
def test_calls_that_need_each_other_or_have_whole_batches_are_not(make: Callable[[], Tensor]) -> None:
    assert found(make()) is None


def test_a_weight_whose_products_cannot_be_timed_is_named_without_times(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> Tensor:
        raise RuntimeError("no kernel for this kind of weight")

    monkeypatch.setattr(torch, "mm", refused)
    seen = found(one_sample_at_a_time())
    assert seen is not None and seen["uses"] == 12 and "joined_s" not in seen
