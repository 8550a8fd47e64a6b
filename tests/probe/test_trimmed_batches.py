"""Batches end with their longest row; what is data in any row stays."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import UserDict, namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from flatout.probe import injections
from flatout.probe.injections.trimmed_batches import _Trimming
from flatout.probe.padding.trimming import trimmed
from flatout.runner.command import injecting_environment

LENGTHS = torch.tensor([5, 17, 9, 3])
MASK = (torch.arange(64) < LENGTHS[:, None]).long()
TOKENS = torch.where(MASK == 1, torch.randint(5, 900, (4, 64), generator=torch.Generator().manual_seed(0)), 0)
FEATURES = torch.rand(4, 64, 6) * MASK[..., None]
Pair = namedtuple("Pair", "tokens mask")


@dataclass
class Batch:
    tokens: torch.Tensor
    mask: torch.Tensor


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": TOKENS, "attention_mask": MASK, "labels": LENGTHS},
        UserDict(input_ids=TOKENS, attention_mask=MASK),
        [TOKENS, MASK],
        (TOKENS, MASK == 0),
        Pair(TOKENS, MASK),
        Batch(TOKENS, MASK),
        {"x": FEATURES, "mask": MASK.float(), "inner": {"positions": torch.arange(64).repeat(4, 1)}},
    ],
)
def test_each_container_comes_back_as_its_own_kind(batch: Any) -> None:
    made = trimmed(batch, "mask")
    assert type(made) is type(batch)
    before, after = _tensors(batch), _tensors(made)
    assert [tuple(part.shape[:2]) for part in after if part.dim() > 1] == [(4, 24)] * sum(p.dim() > 1 for p in before)
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one if one.dim() == 1 else one[:, :24], other)
        assert other.is_contiguous()


def test_padding_before_the_data_is_cut_off_there() -> None:
    made = trimmed((TOKENS.flip(1), MASK.flip(1)), "mask")
    assert torch.equal(made[0], TOKENS.flip(1)[:, -24:])
    made = trimmed({"ids": TOKENS.flip(1)}, "ids=0")
    assert torch.equal(made["ids"], TOKENS.flip(1)[:, -24:])


def test_masks_by_pairs_are_cut_twice_and_features_once() -> None:
    pairs = MASK[:, :, None] * MASK[:, None, :]
    wide = torch.rand(4, 64, 64) * MASK[..., None]
    edges = torch.rand(4, 3, 64, 64) * pairs[:, None]
    batch = [TOKENS, MASK, pairs, pairs[:, None].float(), edges, MASK[:, None, None], wide, torch.rand(4, 3, 64)]
    made = trimmed(batch, "mask")
    shapes = [tuple(part.shape) for part in made]
    assert shapes[2:] == [(4, 24, 24), (4, 1, 24, 24), (4, 3, 24, 24), (4, 1, 1, 24), (4, 24, 64), (4, 3, 64)]
    pictures = torch.rand(4, 3, 64, 64)  # of this size by chance
    assert trimmed([TOKENS, MASK, pictures], "mask")[2].shape == pictures.shape


def test_lengths_and_values_have_to_be_asked_for() -> None:
    assert trimmed((FEATURES, LENGTHS), "mask") is None
    assert tuple(trimmed((FEATURES, LENGTHS), "lengths")[0].shape) == (4, 24, 6)
    first = FEATURES.transpose(0, 1)
    assert tuple(trimmed((first, LENGTHS), "lengths")[0].shape) == (24, 4, 6)
    assert trimmed({"ids": TOKENS}, "mask") is None
    assert trimmed({"ids": TOKENS}, "other=0") is None
    assert trimmed({"ids": TOKENS, "labels": LENGTHS}, "ids=1") is None
    made = trimmed({"ids": TOKENS, "segments": torch.zeros_like(TOKENS)}, "ids=0")
    assert [tuple(part.shape) for part in made.values()] == [(4, 24), (4, 24)]
    assert tuple(trimmed(TOKENS, "=0").shape) == (4, 24)


def test_batches_whose_longest_row_is_whole_stay_as_they_are() -> None:
    full = torch.tensor([64, 17, 9, 3])
    mask = (torch.arange(64) < full[:, None]).long()
    assert trimmed((TOKENS, mask), "mask") is None
    assert trimmed((TOKENS[:, :20], MASK[:, :20]), "mask") is None  # 17, rounded up to 24
    assert trimmed((torch.rand(4, 3, 8, 8), LENGTHS), "mask") is None


TRAINING = """
import json, sys
import torch
from torch import nn
from torch.utils.data import DataLoader
from planted import Reader, Sentences

def main():
    torch.manual_seed(0)
    net, seen = Reader(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    loader = DataLoader(Sentences(), 16, num_workers=int(sys.argv[1]), multiprocessing_context=sys.argv[2] or None)
    for number, batch in enumerate(loader):
        loss = nn.functional.cross_entropy(net(batch["input_ids"], batch["attention_mask"]), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append((batch["input_ids"].shape[1], loss.item()))
        if number == 10:
            break
    with torch.no_grad():
        widths = {batch["input_ids"].shape[1] for batch, _ in zip(DataLoader(Sentences(), 16), range(3))}
    print(json.dumps([seen, list(widths)]))

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "workers", "method"),
    [
        pytest.param("mask", 0, "", marks=pytest.mark.slow),
        ("input_ids=0", 2, "fork"),
        pytest.param("mask", 1, "spawn", marks=pytest.mark.slow),
    ],
)
def test_a_model_that_masks_padding_learns_the_same(tmp_path: Path, setting: str, workers: int, method: str) -> None:
    planted = Path(__file__).parents[1] / "end_to_end" / "planted" / "sentences_of_one_length.py"
    (tmp_path / "planted.py").write_text(planted.read_text())
    script = tmp_path / "train.py"
    script.write_text(TRAINING)

    def trained(settings: dict[str, str]) -> Any:
        environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings)}
        words = [sys.executable, str(script), str(workers), method]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    plain, _ = trained({})
    seen, validated = trained({"trim_padding": setting})
    assert {width for width, _ in plain} == {256}
    assert max(width for width, _ in seen) <= 72
    assert [loss for _, loss in seen] == pytest.approx([loss for _, loss in plain], rel=1e-4)
    assert validated == [256]  # passes without gradients stay


def _tensors(batch: Any) -> list[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        return [batch]
    parts = batch if isinstance(batch, list | tuple) else dict(batch).values() if hasattr(batch, "keys") else None
    return [tensor for part in (vars(batch).values() if parts is None else parts) for tensor in _tensors(part)]


def test_what_cannot_be_trimmed_is_said_and_comes_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    injected = injections.Injected(None)
    monkeypatch.setattr(injections, "INJECTED", injected)
    full = torch.ones(4, 64)
    collate = _Trimming(lambda samples: (TOKENS, full), "mask")
    assert all(collate([])[0] is TOKENS for _ in range(16))
    assert injected.refused == {"trim_padding": "no batch holds padding that mask shows"}
    broken = _Trimming(lambda samples: {"ids": TOKENS, "mask": MASK}, "ids=none")
    assert broken([])["ids"] is TOKENS and "ValueError" in injected.refused["trim_padding"]


def test_a_tensor_of_the_same_width_that_holds_no_padding_stays_whole() -> None:
    made = trimmed((TOKENS, MASK, torch.arange(256.0).reshape(4, 64), torch.arange(64).repeat(4, 1)), "mask")
    assert [tuple(part.shape) for part in made] == [(4, 24), (4, 24), (4, 64), (4, 24)]
