"""What a memoized function reads besides its arguments: seen where it changes, or else the function is left alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from flatout.probe.injections.call_keys import CallKeys  # noqa: E402
from flatout.runner.command import injecting_environment  # noqa: E402

READING = """
import dataclasses, functools, os, sys
from os import getenv
import numpy, torch

EPOCH = 0
FACTOR = 1

class Level:
    __slots__ = ("value",)
    def get(self):
        return self.value * FACTOR

@dataclasses.dataclass(slots=True)
class Settings:
    size: int = 1

class Named:
    def __getattr__(self, name):
        if name == "epoch":
            return EPOCH
        raise AttributeError(name)

class Scaling:
    strength = 1
    def __call__(self, value):
        return value * self.strength + EPOCH

LEVEL, SETTINGS, SCALE = Level(), Settings(), Scaling()
LEVEL.value = 1

PART = functools.partial(lambda factor, value: factor * value + EPOCH, 2)

@functools.lru_cache(maxsize=None)
def cached():
    return EPOCH

class Samples(Named):
    def __init__(self):
        self.level, self.steps = Level(), [Scaling()]
        self.level.value = 2
        self.table, self.large = numpy.zeros(5000), torch.zeros(1_000_000)
        self.named = numpy.array([1, [2]], dtype=object)

    def of_slots(self, index): return LEVEL.get()
    def of_dataclass(self, index): return SETTINGS.size
    def of_own_slots(self, index): return self.level.get()
    def of_callable(self, index): return SCALE(index)
    def of_a_step(self, index): return [step(index) for step in self.steps]
    def of_getattr(self, index): return self.epoch
    def of_cache(self, index): return cached()
    def of_partial(self, index): return PART(index)
    def of_environment(self, index): return os.environ.get("LEVEL")
    def of_getenv(self, index): return getenv("LEVEL")
    def of_dtype(self, index): return torch.get_default_dtype()
    def of_import(self, index):
        import beside
        return beside.value()
    def of_table(self, index): return self.table[index]
    def of_large(self, index): return self.large[index]
    def of_objects(self, index): return self.named[index]
    def by_eval(self, index): return eval("EPOCH")
    def by_globals(self, index): return globals()["EPOCH"]
    def by_modules(self, index): return sys.modules[__name__].EPOCH
    def by_size(self, index): return os.stat(__file__).st_size
    def by_new_import(self, index):
        import nowhere
        return nowhere
    def by_library(self, index):
        import this
        return this
    def by_model(self, index): self.model.eval(); return index
"""
BESIDE = "DEPTH = 1\ndef value():\n    return DEPTH\n"


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    made = {}
    for name, code in (("beside", BESIDE), ("reading", READING)):
        path = tmp_path / f"{name}.py"
        path.write_text(code)
        module = ModuleType(name)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(code, str(path), "exec"), vars(module))
        made[name] = module
    monkeypatch.delenv("LEVEL", raising=False)
    yield {**vars(made["reading"]), "reading": made["reading"], "beside": made["beside"], "os": os, "torch": torch}
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("method", "change"),
    [
        ("of_slots", "LEVEL.value = 3"),
        ("of_slots", "reading.FACTOR = 2"),
        ("of_dataclass", "SETTINGS.size = 3"),
        ("of_own_slots", "samples.level.value = 3"),
        ("of_callable", "SCALE.strength = 3"),
        ("of_callable", "reading.EPOCH = 3"),
        ("of_a_step", "reading.EPOCH = 3"),
        ("of_a_step", "samples.steps[0].strength = 3"),
        ("of_getattr", "reading.EPOCH = 3"),
        ("of_cache", "reading.EPOCH = 3"),
        ("of_partial", "reading.EPOCH = 3"),
        ("of_environment", "os.environ['LEVEL'] = '3'"),
        ("of_getenv", "os.environ['LEVEL'] = '3'"),
        ("of_dtype", "torch.set_default_dtype(torch.float64)"),
        ("of_import", "beside.DEPTH = 3"),
        ("of_table", "samples.table[4321] = 3"),
        ("of_large", "samples.large[777_777] = 3"),
        ("of_objects", "samples.named[0] = 3"),
    ],
)
def test_a_change_is_seen(space: dict[str, Any], monkeypatch: pytest.MonkeyPatch, method: str, change: str) -> None:
    samples = space["Samples"]()
    keys = CallKeys(getattr(space["Samples"], method))
    before, _ = keys.key((samples, 1), {})
    assert before is not None and keys.key((samples, 1), {})[0] == before
    monkeypatch.setenv("LEVEL", "1")
    before, _ = keys.key((samples, 1), {})
    exec(change, space | {"samples": samples})
    assert keys.key((samples, 1), {})[0] != before


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("by_eval", "it uses eval"),
        ("by_globals", "it uses globals"),
        ("by_modules", "it uses sys.modules"),
        ("by_size", "it uses st_size"),
        ("by_new_import", "it imports nowhere, which was not imported before"),
        ("by_library", ""),
        ("by_model", ""),  # a method of that name is another thing
    ],
)
def test_a_function_that_may_read_anything_has_no_keys(space: dict[str, Any], method: str, why: str) -> None:
    keys = CallKeys(getattr(space["Samples"], method))
    key, _ = keys.key((space["Samples"](), 1), {})
    assert ((key is None), keys.unknown) == (bool(why), why)


TRAINING = """
import os, time, torch
from torch.utils.data import DataLoader, Dataset

class Listed(Dataset):
    def __len__(self): return 100
    def __getitem__(self, index): return torch.tensor([float(len(os.listdir("listed")) * index)])

class Blind(Dataset):
    def __len__(self): return 100
    def __getitem__(self, index): return torch.tensor([float(globals()["EPOCH"])])

class Hidden(Dataset):
    def __init__(self): self.many = list(range(50_000))
    def __len__(self): return 100
    def __getitem__(self, index): return torch.tensor([float(self.many[40_001])])

if __name__ == "__main__":
    os.makedirs("listed", exist_ok=True)
    weights, listed, blind, hidden = torch.ones(1, requires_grad=True), Listed(), Blind(), Hidden()
    for EPOCH in range(8):
        open("listed/%d" % (EPOCH // 4), "w").close()
        hidden.many[40_001] = EPOCH // 4
        for data in (listed, blind, hidden):
            for batch in DataLoader(data, 10, num_workers=WORKERS):
                loss = (batch * weights).sum()
                loss.backward()
                print(type(data).__name__, EPOCH, loss.item())
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_training_is_told_of_each_function_that_was_left_alone(tmp_path: Path, workers: int) -> None:
    (tmp_path / "train.py").write_text(TRAINING.replace("WORKERS", str(workers)))
    named = ",".join(f"train.py:{name}.__getitem__" for name in ("Listed", "Blind", "Hidden"))

    def printed(settings: dict[str, Any]) -> tuple[list[str], str]:
        for path in (tmp_path / "listed").glob("*"):
            path.unlink()
        done = subprocess.run(
            [sys.executable, "train.py"],
            env=injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr

    plain, _ = printed({})
    seen, said = printed({"memoize": named, "sample_cache_bytes": 1 << 24})
    same = [line for line in plain if not line.startswith("Hidden")]
    assert [line for line in seen if not line.startswith("Hidden")] == same
    alone = "flatout: memoize leaves train.py:{}.__getitem__ alone: {}"
    assert alone.format("Blind", "what it reads is not known: it uses globals") in said
    # A change in a long list is the documented gap: it is found when a call is computed again.
    assert alone.format("Hidden", "it returned something else than before; one call of 64 was compared, ") in said
    assert "Listed.__getitem__ alone" not in said and said.startswith("flatout: set ")
