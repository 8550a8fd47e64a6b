"""Recurrent layers that a loop calls for one time step each: which of these loops are needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flatout.probe.inspection import repeated_work, stepwise_layers
from tests.probe.watched_steps import watched

LENGTH, BATCH, SIZE = 12, 4, 6
X = torch.rand(LENGTH, BATCH, SIZE)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, SIZE)
        self.lstm, self.gru = nn.LSTM(SIZE, SIZE, num_layers=2), nn.GRU(SIZE, SIZE, batch_first=True)
        self.cell, self.lstm_cell = nn.GRUCell(SIZE, SIZE), nn.LSTMCell(SIZE, SIZE)
        self.other = nn.GRUCell(SIZE, SIZE)
        self.out = nn.Linear(SIZE, 10)


def lstm(net: Net) -> Tensor:
    state, outputs = None, []
    for x in X:
        output, state = net.lstm(x[None], state)
        outputs.append(net.out(output[0]))
    return torch.stack(outputs)


def gru_of_words(net: Net) -> Tensor:
    state, outputs = torch.zeros(1, BATCH, SIZE), []
    words = torch.randint(10, (LENGTH, BATCH))
    for word in words:
        output, state = net.gru(net.embedding(word)[:, None], state)
        outputs.append(output)
    return torch.stack(outputs)


def distributions(net: Net) -> Tensor:
    """What a distribution checks of its parameters is read, and decides nothing."""
    state, total = None, torch.zeros(())
    for x in X:
        output, state = net.lstm(x[None], state)
        total = total + torch.distributions.Normal(output, output.exp(), validate_args=True).log_prob(x[None]).sum()
    return total


def cells(net: Net) -> Tensor:
    state, both = torch.zeros(BATCH, SIZE), None
    for x in X:
        state = net.cell(x, state)
        both = net.lstm_cell(x, both)
    assert both is not None
    return state + both[0]


def own_output(net: Net) -> Tensor:
    state, outputs, word = None, [], torch.zeros(BATCH, dtype=torch.long)
    for _ in range(LENGTH):
        output, state = net.lstm(net.embedding(word)[None], state)
        outputs.append(net.out(output[0]))
        word = outputs[-1].argmax(1).detach()
    return torch.stack(outputs)


def attention(net: Net) -> Tensor:
    state, total = torch.zeros(BATCH, SIZE), torch.zeros(())
    for _ in range(LENGTH):
        weights = (X * state).sum(2, keepdim=True).softmax(0)
        state = net.cell((weights * X).sum(0), state)
        total = total + state.sum()
    return total


def written(net: Net) -> Tensor:
    """The output goes into a buffer, from which the next input comes."""
    state, buffer = None, torch.zeros(LENGTH + 1, BATCH, SIZE)
    for place in range(LENGTH):
        output, state = net.lstm(buffer[place][None].clone(), state)
        buffer = buffer.clone()
        buffer[place + 1] = output[0]
    return buffer


def by_number(net: Net) -> Tensor:
    state, total, place = None, torch.zeros(()), 0
    for _ in range(LENGTH):
        output, state = net.lstm(X[place][None], state)
        place = int(output.abs().sum().item() * 1e6) % LENGTH
        total = total + output.sum()
    return total


def by_numpy(net: Net) -> Tensor:
    state, outputs, word = None, [], torch.zeros(BATCH, dtype=torch.long)
    for _ in range(LENGTH):
        output, state = net.lstm(net.embedding(word)[None], state)
        outputs.append(net.out(output[0]))
        word = torch.from_numpy(outputs[-1].detach().numpy().argmax(1))
    return torch.stack(outputs)


def by_list(net: Net) -> Tensor:
    state, x, total = torch.zeros(BATCH, SIZE), X[0], torch.zeros(())
    for _ in range(LENGTH):
        state = net.cell(x, state)
        x = torch.tensor(state.detach().tolist())
        total = total + state.sum()
    return total


def stacked(net: Net) -> Tensor:
    """The second cell takes what the first one gives, and feeds nothing back."""
    state, above = torch.zeros(BATCH, SIZE), torch.zeros(BATCH, SIZE)
    for x in X:
        state = net.cell(x, state)
        above = net.other(state, above)
    return above


def stacked_with_feedback(net: Net) -> Tensor:
    state, above = torch.zeros(BATCH, SIZE), torch.zeros(BATCH, SIZE)
    for x in X:
        state = net.cell(x + above, state)
        above = net.other(state, above)
    return above


def state_of_another(net: Net) -> Tensor:
    """The state is changed between two steps, which no call with all of them does."""
    state, total = torch.zeros(BATCH, SIZE), torch.zeros(())
    for x in X:
        state = torch.tanh(net.cell(x, state))
        total = total + state.sum()
    return total


def state_written_to(net: Net) -> Tensor:
    state, total = None, torch.zeros(())
    for x in X:
        output, state = net.lstm(x[None], state)
        state[0].data.mul_(0.5)
        total = total + output.sum()
    return total


def two_by_number(net: Net) -> Tensor:
    state, other, place = torch.zeros(BATCH, SIZE), torch.zeros(BATCH, SIZE), 0
    for _ in range(LENGTH):
        state = net.cell(X[place], state)
        other = net.other(X[place], other)
        place = int(other.abs().sum().item() * 1e6) % LENGTH
    return state + other


def states_of_their_own(net: Net) -> Tensor:
    return torch.stack([net.lstm(x[None])[0] for x in X])


def whole(net: Net) -> Tensor:
    return torch.as_tensor(sum(net.lstm(X)[0].sum() for _ in range(LENGTH)))


def seen(monkeypatch: pytest.MonkeyPatch, forward: Callable[[Net], Tensor]) -> list[dict[str, Any]]:
    """What the record says of two steps."""
    torch.manual_seed(0)
    net = Net()
    found: list[dict[str, Any]] = watched(monkeypatch, lambda: forward(net).sum()).get("stepwise_layers", [])
    return found


@pytest.mark.parametrize(
    ("forward", "kinds"),
    [
        (lstm, ["LSTM"]),
        (distributions, ["LSTM"]),
        (gru_of_words, ["GRU"]),
        (cells, ["GRUCell", "LSTMCell"]),
        (stacked, ["GRUCell", "GRUCell"]),
    ],
)
def test_loops_whose_inputs_are_known_are_timed(
    monkeypatch: pytest.MonkeyPatch, forward: Callable[[Net], Tensor], kinds: list[str]
) -> None:
    found = seen(monkeypatch, forward)
    assert [one["kind"] for one in found] == kinds
    for one in found:
        assert "skipped" not in one, one
        assert (one["calls"], one["timed"]) == (LENGTH, LENGTH) and one["chained"] >= LENGTH - 1
        assert len(one["apart_ns"]) == len(one["joined_ns"]) >= 2 and min(one["apart_ns"]) > 0


@pytest.mark.parametrize(
    "forward",
    [
        *(own_output, attention, written, by_number, by_numpy, by_list, states_of_their_own, whole),
        *(stacked_with_feedback, state_of_another, state_written_to),
    ],
)
def test_loops_that_are_needed_or_are_no_such_loops_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, forward: Callable[[Net], Tensor]
) -> None:
    assert seen(monkeypatch, forward) == []


def test_random_numbers_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer that is made for the timing draws its weights."""
    states = []
    original = repeated_work.RepeatedWork.end

    def compared(mode: Any, whole: bool) -> None:
        before = torch.get_rng_state()
        original(mode, whole)
        states.append(torch.equal(before, torch.get_rng_state()))

    monkeypatch.setattr(repeated_work.RepeatedWork, "end", compared)
    assert [one["kind"] for one in seen(monkeypatch, cells)] == ["GRUCell", "LSTMCell"]
    assert states == [True, True]


def test_a_layer_that_only_hears_from_another_one_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = seen(monkeypatch, two_by_number)  # of its two cells, the other one decides on its own inputs
    assert (found["kind"], found["calls"]) == ("GRUCell", LENGTH) and found["name"].endswith(".cell")


def test_what_comes_too_late_in_a_step_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_work, "MOST_OPERATORS", 5)

    def late(net: Net) -> Tensor:
        for _ in range(9):
            torch.zeros(3).add_(1)
        return lstm(net)

    (found,) = seen(monkeypatch, late)
    assert (found["kind"], found["calls"]) == ("LSTM", LENGTH) and "too many operators" in found["skipped"]


def test_a_hooked_layer_is_not_called(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def hooked(net: Net) -> Tensor:
        net.lstm.register_forward_hook(lambda *_: calls.append(1))
        return lstm(net)

    (found,) = seen(monkeypatch, hooked)
    assert found["skipped"] == "hooks on it would see the calls"
    assert len(calls) == LENGTH + 2 * LENGTH  # a second hook in the second step


def test_one_call_computes_what_the_loop_does() -> None:
    torch.manual_seed(0)
    for module in (nn.LSTMCell(SIZE, SIZE), nn.GRUCell(SIZE, SIZE), nn.RNNCell(SIZE, SIZE), nn.LSTM(SIZE, SIZE)):
        made = stepwise_layers._whole(module)
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        with torch.no_grad():
            for name in names if made is not module else ():
                getattr(made, f"{name}_l0").copy_(getattr(module, name))
        step = X[0] if made is not module else X[:1]
        in_turn = stepwise_layers._in_turn(module, (step,), 5)
        joined = made(X[:1].expand(5, -1, -1))[0]
        torch.testing.assert_close(in_turn.reshape(joined.shape), joined)
