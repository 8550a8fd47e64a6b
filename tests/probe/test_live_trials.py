"""Settings switched within one running training: every sample comes once, in the same order, and blocks are counted."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from flatout.probe import events
from tests.probe.recorded import Recorded, new_run_folder, probed_env, read_back, run_bare

HEAD = """
import itertools, json, random, sys, time, torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

class Numbers(Dataset):
    def __init__(self, count=400):
        self.count = count
    def __len__(self):
        return self.count
    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((4,), float(index)), index

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.0)
seen = []

def step(x, indices):
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
    seen.append(indices.tolist())

def print_seen():
    print(json.dumps([seen, torch.rand(1).item(), random.random()]))
"""
LOOP = """
torch.manual_seed(0)
random.seed(0)
loader = {loader}
for epoch in range({passes}):
    for x, indices in loader:
        step(x, indices)
print_seen()
"""
LONG = {"block_s": 0.08, "pass_s": 0.1, "least_batches": 4}  # steps of about 4 ms: passes are longer than a block
SHORT = {"block_s": 30.0, "pass_s": 60.0, "least_batches": 1}


def trial(
    folder: Path, source: str, *variants: dict[str, Any], order: tuple[int, ...] = (0, 1, 1, 0), **plan: Any
) -> Recorded:
    """Run a script under the probe with the plan of a live trial."""
    import os
    import subprocess
    import sys

    run = new_run_folder(folder)
    written = {"variants": [{}, *variants], "order": order, **LONG, **plan}
    (run / "live.json").write_text(json.dumps(written))
    script = folder / "script.py"
    script.write_text(dedent(HEAD) + dedent(source))
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=folder,
        env=probed_env(run, env),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    return Recorded(done.returncode, done.stdout, done.stderr, read_back(run))


def told(found: Recorded) -> dict[str, Any]:
    """What the training process says of its trial."""
    return dict(found.main.info.get("live") or {})


def blocks(found: Recorded) -> list[int]:
    """The numbers of the blocks, part by part."""
    return [int(number) for number in found.main.of_kinds(events.LIVE_BLOCK)["arg"]]


def same(folder: Path, source: str, *variants: dict[str, Any], **plan: Any) -> Recorded:
    """Run a script with a trial and without; check that it saw the same samples and random numbers."""
    bare = run_bare(folder, dedent(HEAD) + dedent(source))
    assert bare.code == 0, bare.err
    found = trial(folder, source, *variants, **plan)
    assert found.code == 0, found.err
    assert json.loads(found.out) == json.loads(bare.out)
    assert not found.faults()
    return found


@pytest.mark.parametrize(
    ("loader", "settings"),
    [
        ("DataLoader(Numbers(), 4)", {"num_workers": 2, "persistent_workers": True}),
        ("DataLoader(Numbers(), 4, shuffle=True, num_workers=1)", {"num_workers": 3, "prefetch_factor": 3}),
        ("DataLoader(Numbers(), 4, shuffle=True, num_workers=2, persistent_workers=True)", {"num_workers": 0}),
        (
            "DataLoader(Numbers(), batch_sampler=BatchSampler(SequentialSampler(range(399, -1, -1)), 4, False))",
            {"num_workers": 2},
        ),
        (
            "DataLoader(Numbers(), 4, shuffle=True, generator=torch.Generator().manual_seed(3), num_workers=1)",
            {"start_method": "forkserver", "worker_threads": 1},
        ),
        ("DataLoader(Numbers(), 4, num_workers=1, worker_init_fn=lambda worker: None)", {"num_workers": 2}),
        ("DataLoader(Numbers(), None, sampler=range(0, 400, 2))", {"num_workers": 2}),
    ],
    ids=["default", "shuffled", "persistent", "batch_sampler", "generator", "worker_init_fn", "no batches"],
)
def test_a_switch_within_a_pass_keeps_every_sample_in_its_order(
    tmp_path: Path, loader: str, settings: dict[str, Any]
) -> None:
    step = "step(x, indices)" if "None" not in loader.split("sampler")[0] else "step(x, torch.tensor(indices))"
    if "start_method" in settings:  # such workers import the script
        loop = LOOP.format(loader=loader, passes=3).replace("step(x, indices)", step)
        source = "def main():\n" + "".join(f"    {line}\n" for line in loop.splitlines())
        source += "if __name__ == '__main__':\n    main()\n"
    else:
        source = LOOP.format(loader=loader, passes=3).replace("step(x, indices)", step)
    found = same(tmp_path, source, settings)
    assert told(found) == {"passes": False}
    assert sorted(set(blocks(found))) == [0, 1, 2, 3]


@pytest.mark.parametrize("own", ["num_workers=1", "num_workers=2, persistent_workers=True", "num_workers=0"])
def test_short_passes_are_counted_whole_and_switched_between(tmp_path: Path, own: str) -> None:
    source = LOOP.format(loader=f"DataLoader(Numbers(24), 4, shuffle=True, {own})", passes=14)
    plan = {"block_s": 0.02, "pass_s": 0.1, "least_batches": 6}
    # The look takes as long as a block: the first pass ends before that only where a block is long.
    found = same(tmp_path, source, {"num_workers": 3, "persistent_workers": True}, **{**plan, "block_s": 0.05})
    assert told(found)["passes"] or blocks(found)


def test_batches_out_of_order_come_once_each(tmp_path: Path) -> None:
    source = LOOP.format(loader="DataLoader(Numbers(), 4, num_workers=2)", passes=2)
    found = trial(tmp_path, source, {"in_order": False})
    seen = json.loads(found.out)[0]
    assert sorted(sum(seen[:100], [])) == sorted(sum(seen[100:], [])) == list(range(400))
    assert told(found).get("failed", "").startswith("in_order") or not told(found).get("failed")


def test_an_iterable_data_set_is_not_switched_within_a_pass(tmp_path: Path) -> None:
    source = """
    class Stream(IterableDataset):
        def __iter__(self):
            for index in range(400):
                time.sleep(0.001)
                yield torch.full((4,), float(index)), index
    """
    found = same(
        tmp_path,
        dedent(source) + LOOP.format(loader="DataLoader(Stream(), 4, num_workers=1)", passes=1),
        {"prefetch_factor": 4},
    )
    assert "the place of each worker in an iterable data set cannot be handed over" in told(found)["failed"]
    assert not blocks(found)


def test_workers_that_stay_have_no_effect_within_a_pass(tmp_path: Path) -> None:
    source = LOOP.format(loader="DataLoader(Numbers(), 4, num_workers=1)", passes=1)
    found = same(tmp_path, source, {"persistent_workers": True})
    assert "persistent_workers takes effect only where a pass begins" in told(found)["failed"]


def test_loaders_read_in_turn_are_all_switched_and_validation_is_not(tmp_path: Path) -> None:
    source = """
    torch.manual_seed(0)
    one, two = (DataLoader(Numbers(), 4, shuffle=True, num_workers=1) for _ in range(2))
    validation = DataLoader(Numbers(8), 4)
    for epoch in range(2):
        for number, ((x, i), (y, j)) in enumerate(zip(one, two)):
            step(x + y, torch.cat([i, j]))
            if number == 50:
                for x, i in validation:
                    seen.append([i.tolist(), type(torch.utils.data.get_worker_info()).__name__])
    print_seen()
    """
    found = same(tmp_path, source, {"num_workers": 2})
    assert told(found) == {"passes": False}


def test_a_subclass_with_an_endless_iterator_is_switched(tmp_path: Path) -> None:
    source = """
    class Repeat:
        def __init__(self, sampler):
            self.sampler = sampler
        def __len__(self):
            return len(self.sampler)
        def __iter__(self):
            while True:
                yield from iter(self.sampler)

    class Endless(DataLoader):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            object.__setattr__(self, "batch_sampler", Repeat(self.batch_sampler))
            self.iterator = super().__iter__()
        def __iter__(self):
            for _ in range(len(self.batch_sampler)):
                yield next(self.iterator)

    torch.manual_seed(0)
    for epoch in range(3):
        if not epoch:
            loader = Endless(Numbers(), 4, shuffle=True, num_workers=1)
        for x, indices in loader:
            step(x, indices)
    print(json.dumps(seen))
    """
    found = same(tmp_path, source, {"num_workers": 2})
    assert told(found) == {"passes": False}


def test_a_loader_made_anew_for_each_pass_is_switched(tmp_path: Path) -> None:
    source = """
    torch.manual_seed(0)
    data = Numbers()
    for epoch in range(3):
        for x, indices in DataLoader(data, 4, shuffle=True, num_workers=1):
            step(x, indices)
    print_seen()
    """
    found = same(tmp_path, source, {"num_workers": 2, "persistent_workers": True})
    assert told(found) == {"passes": False}


def test_a_setting_that_is_refused_ends_the_trial_and_not_the_training(tmp_path: Path) -> None:
    source = LOOP.format(loader="DataLoader(Numbers(), 4)", passes=1)
    found = same(tmp_path, source, {"prefetch_factor": 4})
    assert told(found)["failed"].endswith("prefetch_factor: there are no workers")


def test_workers_that_cannot_start_end_the_trial_and_lose_no_sample(tmp_path: Path) -> None:
    loader = "DataLoader(Numbers(), 4, shuffle=True, num_workers=1, collate_fn=lambda samples: collate(samples))"
    source = "from torch.utils.data import default_collate as collate\n" + LOOP.format(loader=loader, passes=1)
    found = same(tmp_path, source, {"start_method": "spawn"})  # a lambda cannot be pickled
    assert "failed" in told(found)


def test_an_error_of_the_data_set_reaches_the_training_unchanged(tmp_path: Path) -> None:
    source = """
    class Bad(Numbers):
        def __getitem__(self, index):
            if index == 300:
                raise KeyError("sample 300")
            return super().__getitem__(index)
    """
    found = trial(
        tmp_path,
        dedent(source) + LOOP.format(loader="DataLoader(Bad(), 4, num_workers=1)", passes=1),
        {"num_workers": 2},
    )
    assert found.code == 1 and "KeyError" in found.err and "sample 300" in found.err


def test_torch_settings_are_switched_and_put_back(tmp_path: Path) -> None:
    source = LOOP.format(loader="DataLoader(Numbers(), 4)", passes=2).replace(
        "step(x, indices)", "step(x, indices); counts.add(torch.get_num_threads())"
    )
    found = trial(tmp_path, "counts = set()\n" + source + "print(sorted(counts), torch.get_num_threads())", {"threads": 3})
    assert found.out.splitlines()[-1] == "[1, 3] 1"
    assert told(found) == {"passes": False} and len(set(blocks(found))) == 4


def test_without_a_plan_nothing_is_switched(tmp_path: Path) -> None:
    source = dedent(HEAD) + LOOP.format(loader="DataLoader(Numbers(16), 4, num_workers=1)", passes=1)
    run = new_run_folder(tmp_path)
    assert not (run / "live.json").exists()
    from tests.probe.recorded import run_probed

    found = run_probed(tmp_path, source)
    assert found.code == 0 and told(found) == {} and not blocks(found)
