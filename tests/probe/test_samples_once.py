"""Samples that are kept from pass to pass: the same ones, or those of the data set as ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flatout.runner.command import injecting_environment

SCRIPT = """
import hashlib, json, os, random, sys
import numpy as np, torch
from torch.utils.data import DataLoader, Dataset, Subset

MODE, WORKERS, PERSISTENT = sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3
SCALE = 1.0

class Rows(Dataset):
    def __init__(self):
        self.x = np.random.default_rng(0).random((96, 5), dtype=np.float32)
        self.shift = 0.0
        self.large = np.random.default_rng(1).random((256, 4096), dtype=np.float32)

    def __len__(self):
        return 96

    def __getitem__(self, i):
        with open("asked", "a") as file:
            file.write(".")
        x = np.sin(self.x[i] + self.shift) * SCALE
        if MODE == "drawn":
            x = x + np.float32(np.random.rand())
        if MODE == "python":
            x = x + np.float32(random.random())
        if MODE == "clock":
            x = x + np.float32(int.from_bytes(os.urandom(2), "big"))
        if MODE == "file":
            x = x + np.float32(open("value%d" % (i % 4)).read())
        if MODE == "large":
            x = self.large[i, :80]
        if MODE == "tuples":
            return self.x[i[0]] + i[1]
        if MODE == "grad":
            return torch.from_numpy(x).requires_grad_()
        if MODE == "ragged":
            return x[: 1 + i % 2]
        if MODE == "words":
            return {"x": x, "name": "row %d" % i}
        return {"x": torch.from_numpy(x).double(), "pair": (x > 0, i), "y": self.x[i, 0]}

def digest(batch):
    if isinstance(batch, torch.Tensor):
        form = repr((batch.dtype, batch.shape, batch.stride())).encode()
        form += repr(batch.requires_grad).encode()
        batch = batch.detach()
        found = hashlib.sha1(form + batch.numpy().tobytes()).hexdigest()
        batch.zero_()  # as a training may do: no later pass sees it
        return found
    if isinstance(batch, dict):
        return {name: digest(part) for name, part in batch.items()}
    return [digest(part) for part in batch] if isinstance(batch, (list, tuple)) else str(batch)

def collate(samples):
    return torch.utils.data.default_collate(samples)

def main():
    global SCALE
    torch.manual_seed(0); np.random.seed(0); random.seed(0)
    for n in range(4):
        open("value%d" % n, "w").write(str(n))
    whole = Rows()
    data = Subset(whole, range(95, -1, -1)) if MODE == "subset" else whole
    options = {"persistent_workers": PERSISTENT} if WORKERS else {}
    if MODE == "own collate":
        options["collate_fn"] = collate
    if MODE == "ragged":
        options["batch_size"] = 1
    if MODE == "tuples":
        options.update(sampler=[(i, i % 3) for i in range(96)], shuffle=False)
    loader = DataLoader(data, **{"batch_size": 8, "shuffle": True, "num_workers": WORKERS, **options})
    seen = []
    for number in range(6):
        if number == 3:
            if MODE == "attribute":
                whole.shift = 1.0
            if MODE == "in place":
                whole.x += 1.0
            if MODE == "global":
                SCALE = 2.0
            if MODE == "file":
                open("value1", "w").write("77")
            if MODE == "large":
                whole.large[77, 41] += 1.0
        seen.append([])
        for place, batch in enumerate(loader):
            seen[-1].append(digest(batch))
            if MODE == "within" and number == 3 and place == 5:
                whole.shift = 2.0
    print(json.dumps([seen, torch.rand(1).item(), np.random.rand(), random.random()]))

if __name__ == "__main__":
    main()
"""


def told(folder: Path, *words: str, settings: dict[str, Any]) -> tuple[Any, int, str]:
    """What a training tells of its batches, how often samples were made, and what flatout said."""
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "train.py", *words], env=environment, cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout), (folder / "asked").stat().st_size, done.stderr


# Of six passes over 96 samples: one makes them, 32 are made again and compared, and from then on the first batch of a
# pass, and one of 64.
ALL, ONCE = 6 * 96, 96 + 32 + 4 * 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "asked", "said"),
    [
        (("plain", "0"), ONCE, ""),
        (("plain", "2"), None, ""),
        (("plain", "2", "persistent"), None, ""),
        (("subset", "0"), ONCE, ""),
        (("attribute", "0"), 2 * 96 + 2 * 32 + 2 * 8, ""),
        (("in place", "0"), 2 * 96 + 2 * 32 + 2 * 8, ""),
        (("global", "0"), 2 * 96 + 2 * 32 + 2 * 8, ""),
        (("file", "0"), None, ""),
        (("large", "0"), 2 * 96 + 2 * 32 + 2 * 8, ""),
        (("within", "0"), None, ""),
        (("tuples", "0"), ALL, "an index is no number"),
        (("grad", "0"), ALL, "belong to a graph"),
        (("drawn", "0"), ALL, "drawn at random"),
        (("python", "2"), ALL, "leaves a data set alone: samples of the data set are drawn at random"),
        (("ragged", "0"), ALL, "several forms"),
        (("words", "0"), ALL, "values that are no numbers"),
        (("own collate", "0"), ALL, "not put together by default_collate"),
    ],
)
def test_batches_are_the_same_and_samples_are_made_once(
    tmp_path: Path, words: tuple[str, ...], asked: int | None, said: str
) -> None:
    before, all_asked, _ = told(tmp_path / "without", *words, settings={})
    after, count, err = told(
        tmp_path / "with", *words, settings={"samples_once": True, "sample_cache_bytes": 10_000_000}
    )
    assert after == before and all_asked == ALL
    assert said in err, err
    if asked is not None:
        assert asked <= count <= asked + 10, count
    else:
        assert count < ALL, count


@pytest.mark.slow
def test_what_differs_each_time_is_noticed(tmp_path: Path) -> None:
    _, count, err = told(tmp_path / "with", "clock", "0", settings={"samples_once": True})
    assert count == ALL and "the data set gave another sample than before" in err


def test_more_than_the_memory_holds_is_made_each_time(tmp_path: Path) -> None:
    _, count, _ = told(tmp_path / "with", "plain", "0", settings={"samples_once": True, "sample_cache_bytes": 2_000})
    assert ONCE < count < ALL
    assert os.listdir(tmp_path) == ["with"]
