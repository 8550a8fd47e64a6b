"""Rows that repeat in products, followed through the operators of two steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from flatout.probe.inspection import repeated_work
from tests.probe.watched_steps import watched

STATE, INPUT, BATCH, LENGTH, TIMES = 6, 10, 4, 12, 5
X = torch.rand(BATCH, LENGTH, INPUT)
ENDS = torch.arange(200) % 20
NODES = torch.rand(20, STATE)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.Linear(STATE + INPUT, 3)
        self.edges = nn.Linear(2 * STATE, 3)
        self.plain = nn.Linear(INPUT, STATE)
        self.cell = nn.GRUCell(INPUT, STATE)
        self.pointwise = nn.Conv1d(2 * INPUT, 3, 1)
        self.pointwise_pairs = nn.Conv2d(2 * INPUT, 3, 1)
        self.pointwise_alone = nn.Conv1d(INPUT, 3, 1)
        self.wide = nn.Conv1d(2 * INPUT, 3, 3)
        self.table = nn.Embedding(30, INPUT)
        self.blocks = nn.Linear(3 * STATE, 3)


def attention(net: Net) -> Tensor:
    """One state beside each of the inputs, which are the same at each time step."""
    state, total = torch.zeros(BATCH, STATE), torch.zeros(())
    for _ in range(TIMES):
        rows = torch.cat((state.repeat(LENGTH, 1, 1).permute(1, 0, 2), X), 2)
        weights = net.attention(rows.view(-1, STATE + INPUT)).view(BATCH, LENGTH, 3).mean(2).softmax(1)
        state = net.cell((weights[..., None] * X).sum(1), state)
        total = total + state.sum()
    return total


def expanded(net: Net) -> Tensor:
    state = net.plain(X[:, 0])
    return net.attention(torch.cat((state[:, None].expand(-1, LENGTH, -1), X), 2)).sum()


def in_another_order(net: Net) -> Tensor:
    """What is put together lies in memory as its first part does, and is copied for the product."""
    state = net.plain(X[:, 0])
    return net.attention(torch.cat((state.repeat(LENGTH, 1, 1).permute(1, 0, 2), X), 2)).sum()


def expanded_alone(net: Net) -> Tensor:
    return net.plain(X[:1, :1].expand(BATCH, LENGTH, -1).contiguous()).sum()


def edges(net: Net) -> Tensor:
    return net.edges(torch.cat((NODES[ENDS], NODES.index_select(0, ENDS.flip(0))), 1)).sum()


def split(net: Net) -> Tensor:
    weight, total, state = net.attention.weight, torch.zeros(()), torch.zeros(BATCH, STATE)
    of_inputs = nn.functional.linear(X, weight[:, STATE:], net.attention.bias)
    for _ in range(TIMES):
        weights = (of_inputs + nn.functional.linear(state, weight[:, :STATE])[:, None]).mean(2).softmax(1)
        state = net.cell((weights[..., None] * X).sum(1), state)
        total = total + state.sum()
    return total


def gates(net: Net) -> Tensor:
    """Another input at each time step, beside a state of the same size: nothing repeats."""
    state, total = torch.zeros(BATCH, STATE), torch.zeros(())
    for place in range(LENGTH):
        state = net.attention(torch.cat((state, X[:, place]), 1)).repeat(1, 2)
        total = total + state.sum()
    return total


def written_to(net: Net) -> Tensor:
    """What was repeated, and then changed, does not repeat any more."""
    rows = X[:, 0].repeat(LENGTH, 1)
    rows += torch.rand(LENGTH * BATCH, INPUT)
    return net.plain(rows).sum()


def written_to_in_a_list(net: Net) -> Tensor:
    rows = X[:, 0].repeat(LENGTH, 1)
    torch._foreach_add_([rows], [torch.rand(LENGTH * BATCH, INPUT)])
    return net.plain(rows).sum()


def several_rows_in_one(net: Net) -> Tensor:
    """Each row of the product is three rows, which the weight takes apart: nothing is multiplied twice."""
    return net.blocks(NODES[(torch.arange(60) * 7) % 20].view(20, 3 * STATE)).sum()


def two_that_repeat_twice(net: Net) -> Tensor:
    """Of a sum, each part would have to be multiplied."""
    twice = torch.arange(40) % 20
    return net.edges(torch.cat((NODES, NODES.flip(0)), 1)[twice] + torch.rand(20, 2 * STATE)[twice]).sum()


def first_without_gradients(net: Net) -> Tensor:
    with torch.no_grad():
        net.plain(torch.cat((X[:, 0, :5], X[:, 1, :5]), 1))
    return net.plain(torch.cat((X[:, 0, :5], X[:, 1, :5]), 1)).sum()


def empty_and_sparse(net: Net) -> Tensor:
    rows = torch.cat((torch.tensor([]), net.plain(X[:, 0])), -2)
    return torch.sparse.mm(torch.eye(BATCH).to_sparse_csr(), rows).sum()


def updated_between(net: Net) -> Tensor:
    """The same rows, but the weight has changed since the first product."""
    rows = torch.cat((X[:, 0, :STATE], X[:, 1]), 1)
    first = net.attention(rows).sum().detach()
    with torch.no_grad():
        net.attention.weight.mul_(0.5)
    return first + net.attention(torch.cat((X[:, 0, :STATE], X[:, 1]), 1)).sum()


def sparse(net: Net) -> Tensor:
    """What has no memory of its own is no row, and an empty batch none either."""
    made = torch.sparse.mm(torch.eye(BATCH).to_sparse(), net.plain(X[:, 0]))
    return made.sum() + net.edges(torch.cat((X[:0, 0, :STATE], X[:0, 0, :STATE]), 1)).sum()


def points(net: Net) -> Tensor:
    """One vector for all points of a cloud, beside each: the product is a convolution."""
    whole = X.mean(1)[:, :, None].repeat(1, 1, LENGTH)
    return net.pointwise(torch.cat((whole, X.transpose(1, 2)), 1)).sum()


def neighbours(net: Net) -> Tensor:
    """Differences to the points nearby, and the point itself, as in a convolution over edges."""
    near = (torch.arange(LENGTH)[:, None] + torch.arange(4)) % LENGTH
    rows = X.reshape(BATCH * LENGTH, INPUT)
    taken = rows[(torch.arange(BATCH)[:, None, None] * LENGTH + near).view(-1), :].view(BATCH, LENGTH, 4, INPUT)
    own = X.view(BATCH, LENGTH, 1, INPUT).repeat(1, 1, 4, 1)
    edges = torch.cat((taken - own, own), 3).permute(0, 3, 1, 2).contiguous()
    return net.pointwise_pairs(edges).sum()


def gathered(net: Net) -> Tensor:
    """Channels of the same points for all channels."""
    index = (torch.arange(4 * LENGTH) % LENGTH).expand(BATCH, INPUT, -1)
    return net.pointwise_alone(X.transpose(1, 2).gather(2, index)).sum()


def all_pairs(net: Net) -> Tensor:
    """The sum of two that are broadcast: each may be multiplied before."""
    return net.plain(X[:, :, None] - X[:, None]).sum()


def words(net: Net) -> Tensor:
    return net.plain(net.table(torch.arange(300) % 30)).sum()


def wide_kernel(net: Net) -> Tensor:
    """Places beside it differ: this is no product of rows."""
    whole = X.mean(1)[:, :, None].repeat(1, 1, LENGTH)
    return net.wide(torch.cat((whole, X.transpose(1, 2)), 1)).sum()


def part_of_what_repeats(net: Net) -> Tensor:
    """The first of the repeated rows, which are there once."""
    return net.plain(X[:, 0].repeat(LENGTH, 1)[:BATCH].clone()).sum()


def other_columns(net: Net) -> Tensor:
    """What repeats lies along the dimension of the product."""
    return net.pointwise_alone(X[:, :, :1].repeat(1, 1, INPUT).transpose(1, 2)).sum()


def every_row_once(net: Net) -> Tensor:
    return net.edges(torch.cat((NODES[torch.randperm(20)], NODES), 1)).sum()


def seen(monkeypatch: pytest.MonkeyPatch, forward: Callable[[Net], Tensor]) -> dict[str, Any] | None:
    torch.manual_seed(0)
    net = Net()
    found: dict[str, Any] | None = watched(monkeypatch, lambda: forward(net)).get("repeated_rows")
    return found


@pytest.mark.parametrize(
    ("forward", "products", "times"),
    [
        (attention, TIMES, LENGTH),
        (expanded, 1, LENGTH),
        (in_another_order, 1, LENGTH),
        (expanded_alone, 1, BATCH * LENGTH),
        (edges, 1, 10),
        (points, 1, LENGTH),
        (neighbours, 1, 4),
        (gathered, 1, 4),
        (all_pairs, 1, LENGTH / 2),
        (words, 1, 10),
    ],
)
def test_products_of_rows_that_repeat_are_found(
    monkeypatch: pytest.MonkeyPatch, forward: Callable[[Net], Tensor], products: int, times: float
) -> None:
    found = seen(monkeypatch, forward)
    assert found is not None
    assert (found["products"], found["times"]) == (products, times)
    assert 0 < found["needless_ns"] < found["ns"]
    assert [line[2] for line in found["lines"]] == [forward.__name__] and found["lines"][0][4] == products


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize(
    "forward",
    [
        split,
        gates,
        written_to,
        updated_between,
        sparse,
        every_row_once,
        wide_kernel,
        part_of_what_repeats,
        other_columns,
        written_to_in_a_list,
        several_rows_in_one,
        two_that_repeat_twice,
        first_without_gradients,
        empty_and_sparse,
    ],
)
def test_rows_that_do_not_repeat_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, forward: Callable[[Net], Tensor]
) -> None:
    assert seen(monkeypatch, forward) is None


def test_of_attention_nearly_all_of_the_products_is_needless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first product the columns of the inputs are needed, and a twelfth of those of the state."""
    needless: list[float] = []
    save = repeated_work.RepeatedRows.save

    def noted(self: Any, calls: Any, ns: Any) -> None:
        needless[:] = [part for place, part in sorted(self._calls.items()) if calls[place].name == "addmm"]
        save(self, calls, ns)

    monkeypatch.setattr(repeated_work.RepeatedRows, "save", noted)
    seen(monkeypatch, attention)
    state = STATE / (STATE + INPUT) * (1 - 1 / LENGTH)
    assert needless == pytest.approx([state, *[state + INPUT / (STATE + INPUT)] * (TIMES - 1)])
