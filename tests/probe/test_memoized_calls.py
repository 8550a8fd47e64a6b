"""Functions that make samples answer from shared memory; what is random or cannot be told runs each time."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

from flatout.probe.injections.call_keys import CallKeys
from flatout.runner.command import injecting_environment

NEW_PANDAS = pytest.mark.skipif(int(pandas.__version__.split(".")[0]) < 3, reason="before pandas 3 tables share memory")

TRAINING = """
import json, random, sys
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

EPOCHS = 5

class Tokenizer:
    def __init__(self, factor):
        self.factor = factor

    def encode(self, text):
        count("encode")
        return [ord(letter) * self.factor for letter in text]

class Samples(Dataset):
    def __init__(self, tokenizer, first=0):
        self.tokenizer, self.first, self.offset = tokenizer, first, 0.0
        self.texts = ["sample %d" % number for number in range(80)]

    def __len__(self):
        return len(self.texts)

    def load(self, index):
        count("load")
        return np.full((16, 16), self.first + index + self.offset, np.float32)

    def __getitem__(self, index):
        count("getitem")
        array, tokens = self.load(index), self.tokenizer.encode(self.texts[index])
        if random.random() < 0.5:
            array = array[::-1].copy()
        array += 1.0  # in place, on what load() returned
        return torch.from_numpy(array), torch.tensor(tokens[:8]), draws()

def draws():
    count("draws")
    return random.random()

def count(name):
    with open(sys.argv[2], "a") as file:
        file.write(name + "\\n")

def main():
    torch.manual_seed(0)
    random.seed(0)
    workers = int(sys.argv[1])
    how = {"multiprocessing_context": sys.argv[3], "persistent_workers": True} if workers else {}
    data, other = Samples(Tokenizer(2)), Samples(Tokenizer(3), first=1000)
    loader = DataLoader(data, 10, shuffle=True, num_workers=workers, **how)
    weights = torch.zeros(256, requires_grad=True)
    losses = []
    for epoch in range(EPOCHS):
        if len(sys.argv) > 4 and epoch == 3:
            data.offset = 50.0
        for array, tokens, noise in loader:
            loss = (array.flatten(1) @ weights - tokens.float().mean(1) - noise).square().mean()
            weights.grad = None
            loss.backward()
            with torch.no_grad():
                weights -= 1e-9 * weights.grad
            losses.append(loss.item())
    for array, tokens, _ in DataLoader(other, 10):
        losses.append(array.sum().item() + tokens.sum().item())
    calls = open(sys.argv[2]).read().split()
    print(json.dumps({"losses": losses, "calls": {name: calls.count(name) for name in set(calls)}}))

if __name__ == "__main__":
    main()
"""
LOADED = "train.py:Samples.load,train.py:Tokenizer.encode"


def trained(folder: Path, memoize: str, workers: int = 0, *more: str) -> tuple[dict[str, Any], str]:
    """What the script saw, and what was said on standard error."""
    script = folder / "train.py"
    script.write_text(TRAINING)
    calls = folder / f"calls-{len(list(folder.iterdir()))}"
    settings = json.dumps({"memoize": memoize, "sample_cache_bytes": 1 << 26} if memoize else {})
    environment = injecting_environment() | {"FLATOUT_SETTINGS": settings, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(script), str(workers), str(calls), *more]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "more"), [(0, ()), (2, ("fork",)), pytest.param(2, ("spawn",), marks=pytest.mark.slow)]
)
def test_they_run_in_the_first_pass_only_and_the_losses_stay(
    tmp_path: Path, workers: int, more: tuple[str, ...]
) -> None:
    plain, _ = trained(tmp_path, "", workers, *more)
    seen, said = trained(tmp_path, f"{LOADED},train.py:Samples.__getitem__", workers, *more)
    assert seen["losses"] == plain["losses"]
    assert plain["calls"]["load"] == plain["calls"]["encode"] == 6 * 80
    # 80 of each of two data sets, with those that are computed to be compared, by each worker at worst.
    assert seen["calls"]["load"] <= 160 + 32 * max(workers, 1) + 10
    assert seen["calls"]["encode"] <= 160 + 32 * max(workers, 1) + 10
    # Random samples are drawn each time.
    assert seen["calls"]["getitem"] == plain["calls"]["getitem"]
    assert said.startswith("flatout: set ") and "could not" not in said


@pytest.mark.slow
def test_a_plain_attribute_that_changes_is_seen(tmp_path: Path) -> None:
    plain, _ = trained(tmp_path, "", 0, "fork", "changed")
    seen, _ = trained(tmp_path, LOADED, 0, "fork", "changed")
    assert seen["losses"] == plain["losses"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("memoize", "why"),
    [
        ("train.py:draws", "it draws random numbers"),
        ("train.py:Samples.__getitem__", "it draws random numbers"),
    ],
)
def test_what_is_random_is_left_alone(tmp_path: Path, memoize: str, why: str) -> None:
    plain, _ = trained(tmp_path, "")
    seen, said = trained(tmp_path, memoize)
    assert why in said
    assert seen["losses"] == plain["losses"]


ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)
TENSOR = torch.arange(24.0).reshape(2, 3, 4)


def method(*args: Any) -> None:
    """A function whose calls have keys."""


KEYS = CallKeys(method)


def key_of(args: Any, kwargs: Any, keys: CallKeys = KEYS) -> Any:
    return keys.key(args, kwargs)[0]


def function_digest(function: Any, text: str = "") -> Any:
    return CallKeys(function, text).digest


class Thing:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def test_calls_with_other_arguments_or_of_other_objects_have_other_keys(tmp_path: Path) -> None:
    file = tmp_path / "sample.txt"
    file.write_text("one")
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((1,), {}),
        ((True,), {}),
        (("1",), {}),
        ((1.0,), {}),
        ((1, 2), {}),
        (((1, 2),), {}),
        ((1,), {"size": 2}),
        ((str(file),), {}),
        ((file,), {}),
        ((ARRAY,), {}),
        ((ARRAY.T,), {}),
        ((TENSOR,), {}),
        ((Thing(paths=["a", "b"]), 1), {}),
        ((Thing(paths=["a", "c"]), 1), {}),
        ((Thing(paths=["a", "b"], epoch=1), 1), {}),
        ((Thing(table=ARRAY), 1), {}),
        ((Thing(table=ARRAY + 1), 1), {}),
        ((Thing(inner=Thing(n=1)), 1), {}),
        ((Thing(inner=Thing(n=2)), 1), {}),
    ]
    keys = [key_of(*call) for call in calls]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    file.write_text("another")
    assert key_of(*calls[7]) != keys[7]
    assert key_of(*calls[9]) == keys[9]


def test_objects_that_differ_in_large_or_opaque_attributes_have_other_keys() -> None:
    large = torch.zeros(5_000_000)
    frames = [pandas.DataFrame({"x": range(100), "y": [letter] * 100}) for letter in "ab"]
    things = [
        Thing(x=large),
        Thing(x=large + 1),
        Thing(x=large[:4_000_000]),
        *(Thing(table=frame) for frame in frames),
        Thing(f=lambda x: x + 1),
        Thing(f=lambda x: x + 2),
    ]
    keys = [key_of((thing, 1), {}) for thing in things]
    assert None not in keys
    assert len(set(keys)) == len(keys)


def test_an_attribute_that_is_assigned_anew_changes_the_key() -> None:
    thing = Thing(indices=[1, 2, 3], epoch=0, lock=threading.Lock())
    thing.me = thing  # type: ignore[attr-defined]
    key = key_of((thing, 1), {})
    assert key is not None and key == key_of((thing, 1), {})
    thing.indices = [3, 2, 1]  # type: ignore[attr-defined]
    assert key_of((thing, 1), {}) != key


def test_an_object_with_an_attribute_that_cannot_be_pickled_has_no_key() -> None:
    assert key_of((Thing(stream=(one for one in [1])), 1), {}) is None
    assert key_of((1,), {}, CallKeys(scaled_by(one for one in [1]))) is None


def scaled_by(factor: Any) -> Any:
    def scale(value: int) -> Any:
        return value * factor

    return scale


CHANGED = """
import os

LEVEL, OPTIONS = 1, {"depth": [1, 2]}

class Config:
    level = 1

class Base:
    epoch = 0

    def helper(self):
        return self.epoch + LEVEL

class Samples(Base):
    def __init__(self):
        self.config, self.weights, self.transform = Config(), make([1.0, 2.0]), [Config()]
        self.items = {"a": 1}

    def load(self, index):
        return self.helper() + outer() + Config.level + OPTIONS["depth"][0]

def outer():
    return LEVEL

def make(values):
    import numpy
    return numpy.array(values)

def closing():
    factor = 1
    def load(index):
        return index * factor
    def change(value):
        nonlocal factor
        factor = value
    return load, change
"""


def test_what_a_function_reads_besides_its_arguments_changes_the_key(tmp_path: Path) -> None:
    (tmp_path / "changed.py").write_text(CHANGED)
    space: dict[str, Any] = {"__name__": "changed"}
    exec(compile(CHANGED, str(tmp_path / "changed.py"), "exec"), space)
    samples = space["Samples"]()
    keys = CallKeys(space["Samples"].load)

    def key() -> Any:
        return key_of((samples, 3), {}, keys)

    def changed(change: str) -> bool:
        before = key()
        assert before is not None and key() == before
        exec(change, space | {"samples": samples, "space": space})
        return bool(key() != before)

    assert changed("space['LEVEL'] = 2")
    assert changed("Base.epoch = 5")
    assert changed("samples.config.level = 7")
    assert changed("samples.transform[0].strength = 7")
    assert changed("samples.weights[0] = 9.0")
    assert changed("samples.items['a'] = 2")
    assert changed("OPTIONS['depth'] = [3, 4]")
    assert changed("samples.config = Config(); samples.config.level = 7") is False  # it holds the same
    load, change = space["closing"]()
    keys, first = CallKeys(load), key_of((3,), {}, CallKeys(load))
    assert key_of((3,), {}, keys) == first
    change(4)
    assert key_of((3,), {}, keys) != first


def test_functions_with_other_defaults_or_closures_have_other_digests() -> None:
    def scaled(factor: Any) -> Any:
        def scale(value: int, by: int = 1) -> Any:
            return value * factor * by

        return scale

    made = [scaled(2), scaled(3), scaled([2]), scaled(ARRAY), scaled(ARRAY + 1)]
    digests = [function_digest(one, "data.py:scaled.scale") for one in made]
    assert None not in digests and len(set(digests)) == len(digests)
    made[0].__defaults__ = (5,)
    assert function_digest(made[0], "data.py:scaled.scale") != digests[0]
    assert function_digest(scaled(one for one in [1])) is None


@pytest.mark.parametrize("value", [object(), [1, 2], lambda: 1, {1: 2}, TENSOR.clone().requires_grad_()])
def test_a_call_whose_arguments_cannot_be_told_has_no_key(value: Any) -> None:
    assert key_of((1, value), {}) is None


CHANGED_FILE = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        with open("value.txt") as file:
            return torch.tensor([float(file.read()) * index])

weights = torch.ones(1, requires_grad=True)
for epoch in range(6):
    with open("value.txt", "w") as file:
        file.write(str(1 + epoch // 3))
    print(sum((batch * weights).sum().item() for batch in DataLoader(Samples(), 10)))
"""


# pyarrow opens files by itself.
CHANGED_TABLE = (
    CHANGED_FILE.replace("import sys\n", "import sys\nimport pandas\n")
    .replace(
        """        with open("value.txt") as file:
            return torch.tensor([float(file.read()) * index])
""",
        """        return torch.tensor([float(self.table()["value"].iloc[0]) * index])

    def table(self):
        return pandas.read_parquet("value.parquet")
""",
    )
    .replace(
        """    with open("value.txt", "w") as file:
        file.write(str(1 + epoch // 3))
""",
        """    pandas.DataFrame({"value": [1 + epoch // 3]}).to_parquet("value.parquet")
""",
    )
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "name"),
    [
        (CHANGED_FILE, "Samples.__getitem__"),
        (CHANGED_FILE, "Samples.missing"),
        pytest.param(CHANGED_TABLE, "Samples.table", marks=NEW_PANDAS),
    ],
)
def test_a_file_that_a_call_opens_and_that_is_written_anew_is_read(tmp_path: Path, source: str, name: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(source)
    settings = json.dumps({"memoize": f"train.py:{name}", "sample_cache_bytes": 1 << 24})
    environment = injecting_environment() | {"FLATOUT_SETTINGS": settings}
    words = [sys.executable, str(script)]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["780.0"] * 3 + ["1560.0"] * 3
    assert "cannot be kept" not in done.stderr
    assert ("there is no such function" in done.stderr) is (name == "Samples.missing")


FIRST_TABLE = """
import numpy, pandas, torch
from torch.utils.data import DataLoader, Dataset

def made(index):
    with open("calls", "a") as calls:
        calls.write("x")
    return pandas.DataFrame({"b": numpy.random.RandomState(index).randn(9000)})

class Samples(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.tensor([float(made(index)["b"].sum())])

weights = torch.ones(1, requires_grad=True)
for epoch in range(6):
    print(sum((batch * weights).sum().item() for batch in DataLoader(Samples(), 10)))
"""


@pytest.mark.slow
@NEW_PANDAS
def test_a_first_call_that_loads_parts_of_a_library_agrees_with_later_ones(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FIRST_TABLE)
    settings = json.dumps({"memoize": "train.py:made", "sample_cache_bytes": 1 << 26})
    environment = injecting_environment() | {"FLATOUT_SETTINGS": settings}
    words = [sys.executable, "train.py"]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(set(done.stdout.split())) == 1 and "something else" not in done.stderr
    assert 40 < len((tmp_path / "calls").read_text()) < 100
