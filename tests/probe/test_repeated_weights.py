"""Products that could be one, in graphs of backward passes as loops over samples, patches and time steps build them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402

from flatout.probe.inspection import backward_graph, repeated_modules  # noqa: E402
from flatout.probe.inspection.gradients import names_of  # noqa: E402
from flatout.probe.inspection.repeated_modules import ModuleCalls  # noqa: E402
from flatout.probe.inspection.repeated_weights import RepeatedWeights  # noqa: E402


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


MEMORY = nn.GRU(32, 32, batch_first=True)


def seen_and_remembered() -> Tensor:
    """The network looks at each time step alone, and a recurrent layer goes over as many of them."""
    return torch.stack([DECIDE(MEMORY(torch.stack([NET.body(tick) for tick in SAMPLES])[None])[0])]).square().mean()


def remembered_in_between() -> Tensor:
    """Each time step is looked at after the one before was remembered, in a call of its own."""
    state, outputs = torch.zeros(1, 1, 32), []
    for tick in SAMPLES:
        output, state = MEMORY((NET.body(tick) + state[0, 0])[None, None], state)
        outputs.append(output)
    return torch.stack(outputs).square().mean()


@pytest.mark.parametrize(("make", "uses"), [(seen_and_remembered, 12), (remembered_in_between, None)])
def test_time_steps_of_a_recurrent_layer_are_a_loop_of_their_own(make: Callable[[], Tensor], uses: int | None) -> None:
    calls = ModuleCalls()
    weights = RepeatedWeights(calls)
    end = calls.watch()
    weights.look(backward_graph.nodes(make()))
    end()
    seen = weights.described(names_of)
    assert (seen and seen["uses"]) == uses


def module_of(make: Callable[[], Tensor]) -> Any:
    """What the record has of the module in the loop."""
    calls = ModuleCalls()
    weights = RepeatedWeights(calls)
    end = calls.watch()
    weights.look(backward_graph.nodes(make()))
    end()
    seen = weights.described(names_of)
    return None if seen is None else seen.get("module")


@pytest.mark.parametrize("make", [one_sample_at_a_time, one_vector_at_a_time, patches_in_turn])
def test_the_module_in_the_loop_is_timed_with_its_calls_in_turn_and_in_one(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Tensor]
) -> None:
    monkeypatch.setattr(repeated_modules, "BUDGET_NS", 60_000_000_000)
    monkeypatch.setattr(repeated_modules, "MOST_FIRST_NS", 60_000_000_000)
    module = module_of(make)
    assert module["calls"] == 8 and len(module["apart_ns"]) == len(module["joined_ns"]) > 0
    assert min(*module["apart_ns"], *module["joined_ns"]) > 0


class Counting(nn.Module):
    """A module with dropout and running statistics, that keeps what it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.BatchNorm1d(8, affine=False), nn.Linear(8, 8))

    def forward(self, inputs: Tensor) -> Tensor:
        out: Tensor = self.layers(inputs + 1e-3 * random.random() + 1e-3 * np.random.random())
        return out


def test_what_the_module_has_is_as_before() -> None:
    net = Counting()
    pairs = torch.randn(10, 2, 6)
    loss = lambda: torch.stack([net(pair).square().mean() for pair in pairs]).sum()  # noqa: E731
    calls = ModuleCalls()
    weights = RepeatedWeights(calls)
    calls.watch()
    weights.look(backward_graph.nodes(loss()))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    drawn, of_python, of_numpy = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    seen = weights.described(names_of)
    assert seen is not None and len(seen["module"]["joined_ns"]) > 0
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == (of_python, of_numpy)
    assert all(parameter.grad is None for parameter in net.parameters())
    calls.unwatch()


def test_a_module_with_the_users_hooks_or_with_no_input_to_join_is_not_timed() -> None:
    handle = NET.body.register_forward_hook(lambda *_: None)
    try:
        assert module_of(one_sample_at_a_time) == {"skipped": "hooks on the model would see its passes"}
    finally:
        handle.remove()

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 32)

        def forward(self, *, inputs: Tensor) -> Tensor:
            return torch.nn.functional.linear(inputs, self.layer.weight)

    named = Named()
    made = module_of(lambda: torch.stack([named(inputs=sample).mean() for sample in SAMPLES]).sum())
    assert made == {"skipped": "the model's first argument is no tensor with samples"}


def test_calls_are_counted_for_a_few_graphs_only() -> None:
    calls = ModuleCalls()
    calls.watch()
    for _ in range(6):
        one_sample_at_a_time()
        taken = calls.take()
    assert taken == []


@pytest.mark.parametrize(
    ("limit", "value", "because"),
    [("MOST_ELEMENTS", 7, "its input is large"), ("MOST_FIRST_NS", 0, "its calls take long")],
)
def test_a_module_whose_calls_would_take_long_is_not_timed(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int, because: str
) -> None:
    monkeypatch.setattr(repeated_modules, limit, value)
    assert module_of(one_sample_at_a_time) == {"skipped": because}


class Orthogonal(nn.Module):
    """A cell whose weight for its state is computed, at each time step."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(6, 32)
        self.state = torch.nn.utils.parametrizations.orthogonal(nn.Linear(32, 32, bias=False))

    def forward(self, inputs: Tensor, state: Tensor) -> Tensor:
        return torch.tanh(self.inputs(inputs) + self.state(state))


def test_a_cell_whose_weight_for_its_state_is_computed_needs_its_own_results() -> None:
    cell = Orthogonal()

    def loss() -> Tensor:
        state = torch.zeros(4, 32)
        for _ in range(20):
            state = cell(torch.randn(4, 6), state)
        return state.square().mean()

    assert module_of(loss) is None


def test_a_module_that_is_called_twice_for_each_of_many_inputs_is_as_dependent_as_that() -> None:
    def loss() -> Tensor:
        first = [NET.body[2](NET.body[:2](sample[None])) for sample in SAMPLES.repeat(2, 1)]
        return torch.stack([NET.head(NET.body[2](one)).square().sum() for one in first]).mean()

    assert module_of(loss)["calls"] > 1
