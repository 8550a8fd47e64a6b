"""Padding is what a mask, lengths or tokens prove; zeros that may be data are none."""

from __future__ import annotations

from collections import UserDict
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from flatout.probe.inspection.gradients import UnusedGradients
from flatout.probe.inspection.repeated_weights import RepeatedWeights
from flatout.probe.padding.first_batches import PaddingSeen

LENGTH, ROWS, PAD = 32, 8, 0


def seen(*batches: Any) -> dict[str, Any]:
    """What is described of batches that were all trained on."""
    padding = PaddingSeen()
    for batch in batches:
        padding.look(batch, on_device=True)
        padding.keep(None)
    found = padding.described()
    assert found["looked_at"] == len(batches)
    return found


def lengths_of(number: int, longest: int = LENGTH) -> torch.Tensor:
    return torch.randint(5, longest + 1, (ROWS,), generator=torch.Generator().manual_seed(number))


def tokens_of(lengths: torch.Tensor, length: int = LENGTH, pad: int = PAD) -> torch.Tensor:
    rows = torch.randint(1, 1000, (len(lengths), length), generator=torch.Generator().manual_seed(int(lengths.sum())))
    return torch.where(torch.arange(length) < lengths[:, None], rows, pad)


def mask_of(lengths: torch.Tensor, length: int = LENGTH) -> torch.Tensor:
    return (torch.arange(length) < lengths[:, None]).long()


LENGTHS = [lengths_of(number) for number in range(4)]
SHORT = [lengths_of(number, 20) for number in range(4)]
EXPECTED = [[LENGTH, *lengths.tolist()] for lengths in LENGTHS]


@dataclass
class Batch:
    tokens: torch.Tensor
    mask: torch.Tensor


PADDED = {
    "mask": [{"input_ids": tokens_of(n), "attention_mask": mask_of(n), "labels": n} for n in LENGTHS],
    "boolean mask": [(tokens_of(n), mask_of(n) == 1) for n in LENGTHS],
    "mask of padding": [(tokens_of(n), mask_of(n) == 0) for n in LENGTHS],
    "mask of features": [(torch.rand(ROWS, LENGTH, 5) * mask_of(n)[..., None], mask_of(n).float()) for n in LENGTHS],
    "user dict": [UserDict(input_ids=tokens_of(n), attention_mask=mask_of(n)) for n in LENGTHS],
    "dataclass": [Batch(tokens_of(n), mask_of(n)) for n in LENGTHS],
    "nested": [([{"x": tokens_of(n), "mask": mask_of(n)}], n % 2) for n in LENGTHS],
    "lengths": [(torch.rand(ROWS, LENGTH, 5) * mask_of(n)[..., None], n) for n in LENGTHS],
    "list of lengths": [(tokens_of(n), n.tolist()) for n in LENGTHS],
    "tokens": [(tokens_of(n), n % 2) for n in LENGTHS],
    "one tensor": [tokens_of(n) for n in LENGTHS],
    "length first": [((torch.rand(ROWS, LENGTH, 5) * mask_of(n)[..., None]).transpose(0, 1), n) for n in LENGTHS],
}


@pytest.mark.parametrize("name", PADDED)
def test_padding_is_found_with_the_lengths_of_all_rows(name: str) -> None:
    found = seen(*PADDED[name])
    assert found["batches"] == EXPECTED
    assert 0.9 < found["part"] <= 1


def test_rows_that_end_before_their_batch_are_padded_on_either_side() -> None:
    left = [{"ids": tokens_of(n).flip(1), "mask": mask_of(n).flip(1)} for n in SHORT]
    for batches in (left, [batch["ids"] for batch in left], [tokens_of(n) for n in SHORT]):
        assert seen(*batches)["batches"] == [[LENGTH, *n.tolist()] for n in SHORT]


def test_batches_of_one_row_add_up() -> None:
    rows = [{"ids": tokens_of(n[:1]), "mask": mask_of(n[:1])} for n in SHORT]
    assert seen(*rows)["batches"] == [[LENGTH, int(n[0])] for n in SHORT]


def test_a_batch_without_padding_counts_too() -> None:
    whole = torch.full((ROWS,), LENGTH)
    found = seen(*PADDED["mask"], {"input_ids": tokens_of(whole), "attention_mask": mask_of(whole), "labels": whole})
    assert found["batches"] == [*EXPECTED, [LENGTH, *[LENGTH] * ROWS]]


def test_graphs_by_pairs_of_positions_are_padded_with_their_nodes() -> None:
    graphs = [(tokens_of(n), torch.rand(ROWS, 3, LENGTH, LENGTH) * mask_of(n)[:, None, None]) for n in LENGTHS]
    assert seen(*graphs)["part"] == 1.0


def test_padded_labels_are_a_small_part_of_a_batch_of_images() -> None:
    found = seen(*[(torch.rand(ROWS, 3, 64, 64), tokens_of(n, pad=-100)) for n in LENGTHS])
    assert found["part"] < 0.01


def draw(*shape: int, high: int = 10) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(3))


def pictures_with_a_border() -> torch.Tensor:
    pictures = torch.rand(ROWS, 1, 64, 64)
    pictures[..., 40:] = 0
    return pictures


def digits() -> torch.Tensor:
    """Flat pictures of bytes, dark at the edges."""
    rows = draw(ROWS, 784, high=256) * (draw(ROWS, 784) > 6)
    rows[:, -90:] = 0
    return rows


UNPADDED: dict[str, list[Any]] = {
    "pictures with a border": [(pictures_with_a_border(), draw(ROWS)) for _ in range(4)],
    "sound that ends in silence": [(torch.rand(ROWS, 400) * mask_of(n, 400), draw(ROWS)) for n in LENGTHS],
    "pictures as rows": [(digits(), draw(ROWS)) for _ in range(4)],
    "one-hot rows": [(torch.eye(10, dtype=torch.long)[draw(ROWS) % 9], draw(ROWS)) for _ in range(4)],
    "one-hot rows of the label": [(torch.eye(20)[n - 1], n) for n in (draw(ROWS, high=20) + 1 for _ in range(4))],
    "counts": [(draw(ROWS, 50) * (draw(ROWS, 50, high=7) == 0), draw(ROWS)) for _ in range(4)],
    "packed text": [(draw(ROWS, 65, high=500)[:, :-1], draw(ROWS, 65, high=500)[:, 1:]) for _ in range(4)],
    "text that ends in a period": [torch.cat((draw(ROWS, 40, high=90) + 2, torch.ones(ROWS, 1).long()), 1)] * 4,
    "bucketed text": [torch.cat((draw(3, n, high=90) + 2, torch.ones(3, 1).long()), 1) for n in (9, 12, 17, 30)],
    "a frequent last token": [torch.where(torch.arange(40) < n[:, None], draw(ROWS, 40, high=3), 0) for n in LENGTHS],
    "whole mask": [{"ids": draw(ROWS, 40, high=99), "attention_mask": torch.ones(ROWS, 40)} for _ in range(4)],
    "masked language model": [(draw(ROWS, 40, high=99), draw(ROWS, 40) > 1) for _ in range(4)],
    "loss of the answer": [(draw(ROWS, 40, high=99), mask_of(n, 40).flip(1)) for n in LENGTHS],
    "segments": [(draw(ROWS, 40, high=99), mask_of(n, 40)) for n in LENGTHS],
    "flags at the end": [torch.cat((draw(ROWS, 9, high=999) + 2, draw(ROWS, 1, high=2)), 1) for _ in range(4)],
    "classes": [(torch.rand(ROWS, 40), draw(ROWS, high=9) + 1) for _ in range(4)],
    "packed sequence": [torch.nn.utils.rnn.pack_sequence([torch.arange(1, n + 1) for n in (9, 7, 5)])] * 4,
    "separate tensors": [[torch.arange(1, n + 1) for n in (9, 17, 30)]] * 4,
    "text": [["a", "b"], {"name": "c"}, None, 3],
    "positions": [(draw(ROWS, 40, high=99), torch.arange(40).repeat(ROWS, 1)) for _ in range(4)],
    "all the same": [torch.zeros(ROWS, 40, dtype=torch.long)] * 4,
    "sparse": [torch.eye(40).to_sparse()] * 4,
    "few rows": [tokens_of(LENGTHS[0][:2])],
}


@pytest.mark.parametrize("name", UNPADDED)
def test_what_may_be_data_is_no_padding(name: str) -> None:
    assert "batches" not in seen(*UNPADDED[name])


def test_two_fillings_are_no_padding() -> None:
    assert "batches" not in seen(tokens_of(LENGTHS[0]), tokens_of(LENGTHS[1], pad=1001))


def test_a_value_inside_of_any_row_is_data() -> None:
    rows = [tokens_of(n) for n in LENGTHS]
    rows[3][2, 1] = PAD
    assert "batches" not in seen(*rows)


def test_a_batch_that_was_not_trained_on_does_not_count() -> None:
    padding = PaddingSeen()
    padding.look(tokens_of(LENGTHS[0]), on_device=True)
    padding.look(tokens_of(LENGTHS[1]), on_device=True)
    padding.keep(None)
    padding.keep(None)
    found = padding.described()
    assert found["looked_at"] == 1 and found["batches"] == EXPECTED[1:2]


class Hostile(UserDict[str, Any]):
    def values(self) -> Any:
        raise RuntimeError("no")


def test_a_batch_that_cannot_be_read_is_no_fault() -> None:
    padding = PaddingSeen()
    padding.look(Hostile(a=1), on_device=True)
    padding.keep(None)
    assert padding.described() == {"looked_at": 0}


GRU = torch.nn.GRU(5, 4, num_layers=2, batch_first=True)
STACKED = torch.nn.Sequential(torch.nn.Linear(10, 6), torch.nn.LayerNorm(6))
EMBEDDING = torch.nn.Embedding(1000, 4)
GRU_OF_WORDS = torch.nn.GRU(4, 4, batch_first=True)
ENCODER = torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)


def packed(rows: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    sequence = torch.nn.utils.rnn.pack_padded_sequence(rows, lengths, batch_first=True, enforce_sorted=False)
    return GRU(sequence)[1][-1].sum()


def cut_of(lengths: torch.Tensor) -> int:
    """The length of the longest row, made even."""
    return int(lengths.max() + 1) // 2 * 2


def shapes_of(loss: torch.Tensor) -> Any:
    """Shapes in the graph of a loss, as the probe sees them."""
    seen = UnusedGradients(RepeatedWeights())
    end = seen.watch()
    loss.backward()
    end()
    return seen.take_shapes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda rows, lengths: GRU(rows)[0].sum(), True),
        (lambda rows, lengths: torch.nn.functional.linear(rows, GRU.weight_ih_l0).sum(), True),
        (packed, False),
        (lambda rows, lengths: GRU(rows[:, : int(lengths.max())])[0].sum(), False),
        (lambda rows, lengths: (rows[mask_of(lengths) == 1] @ GRU.weight_ih_l0.T).sum(), False),
        (lambda rows, lengths: STACKED(rows.reshape(ROWS, LENGTH // 2, 10)).square().sum(), True),
        (lambda rows, lengths: STACKED(rows[:, : cut_of(lengths)].reshape(ROWS, -1, 10)).square().sum(), False),
    ],
)
def test_padding_that_the_model_leaves_out_is_noticed(compute: Any, expected: bool) -> None:
    padding = PaddingSeen()
    for lengths in SHORT:
        rows = torch.rand(ROWS, LENGTH, 5) * mask_of(lengths)[..., None]
        padding.look((rows, lengths), on_device=True)
        padding.keep(shapes_of(compute(rows, lengths)))
    assert padding.described()["computed"] is expected


def unpacked(tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """A model that packs what it has embedded, and scores all positions up to the longest row."""
    rows = torch.nn.utils.rnn.pack_padded_sequence(EMBEDDING(tokens), lengths, batch_first=True, enforce_sorted=False)
    outputs, _ = torch.nn.utils.rnn.pad_packed_sequence(GRU_OF_WORDS(rows)[0], batch_first=True)
    return EMBEDDING.weight.mm(outputs.reshape(-1, outputs.shape[-1]).T).sum()


@pytest.mark.slow
@pytest.mark.parametrize("besides", [False, True])
def test_rows_that_are_packed_are_computed_up_to_the_longest_unless_others_take_all(besides: bool) -> None:
    padding = PaddingSeen()
    for lengths in SHORT:
        tokens = tokens_of(lengths)
        padding.look({"ids": tokens, "mask": mask_of(lengths)}, on_device=True)
        seen = UnusedGradients(RepeatedWeights())
        end = seen.watch()
        loss = unpacked(tokens, lengths)
        (loss + ENCODER(EMBEDDING(tokens)).sum() if besides else loss).backward()
        end()
        padding.keep(seen.take_shapes(), seen.packed)
    found = padding.described()
    assert found["computed"] is True and found["packed"] is not besides


@pytest.mark.slow
def test_a_transformer_computes_padding() -> None:
    padding = PaddingSeen()
    for lengths in SHORT:
        tokens = tokens_of(lengths)
        padding.look({"ids": tokens, "mask": mask_of(lengths)}, on_device=True)
        padding.keep(shapes_of(ENCODER(EMBEDDING(tokens)).sum()))
    assert padding.described()["computed"] is True


def test_without_a_graph_it_is_not_known_whether_padding_is_computed() -> None:
    assert seen(*PADDED["mask"])["computed"] is None
