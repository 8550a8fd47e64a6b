"""Workers that a setting keeps train as those that each pass starts anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.probe.test_injections import trained

pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, torch
from torch.utils.data import DataLoader, Dataset, Subset

class Numbers(Dataset):
    def __init__(self):
        self.epoch, self.scale = 0, torch.ones(1)
    def __len__(self):
        return 32
    def __getitem__(self, index):
        return torch.tensor([float(index), float(self.epoch), float(self.scale), float(os.getpid())])

def main():
    torch.manual_seed(0)
    numbers = Numbers()
    loader = DataLoader(Subset(numbers, range(24)), 4, shuffle=True)
    weight = torch.nn.Parameter(torch.zeros(1))
    seen, pids = [], []
    for number in range(5):
        rows = torch.cat(list(loader))
        (weight * rows.sum()).sum().backward()
        seen.append([rows[:, :3].tolist(), torch.rand(1).item()])
        pids.append(sorted(set(rows[:, 3].tolist())))
        if number == 1:
            numbers.epoch = 7
        if number == 3:
            numbers.scale += 1
    print(json.dumps({"seen": seen, "kept": [one == other for one, other in zip(pids, pids[1:])]}))

if __name__ == "__main__":
    main()
"""


@pytest.mark.usefixtures("without_coverage")
@pytest.mark.parametrize("settings", [{"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}])
def test_order_random_numbers_and_changes_of_the_data_set_stay(tmp_path: Path, settings: dict[str, Any]) -> None:
    script = tmp_path / "passes.py"
    script.write_text(SCRIPT)
    plain, _ = trained(script)
    found, said = trained(script, **settings)
    assert "could not be set" not in said
    assert found["seen"] == plain["seen"]
    # Started anew only where the data set was changed.
    assert found["kept"] == [True, False, True, False]


VALIDATING = """
import json, os, torch
from torch.utils.data import DataLoader, Dataset, IterDataPipe

class Piped(IterDataPipe):
    def __iter__(self):
        yield from [os.getpid()] * 8

class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return torch.tensor([float(index), float(os.getpid())], dtype=torch.float64)

def main():
    torch.manual_seed(0)
    training, held_out = DataLoader(Numbers(), 4, shuffle=True, num_workers=1), DataLoader(Numbers(), 4, num_workers=2)
    fetched_here, also_evaluated = DataLoader(Numbers(), 4), DataLoader(Numbers(), 2, shuffle=True, num_workers=1)
    twice, piped = DataLoader(Numbers(), 4, num_workers=1), DataLoader(Piped(), 4, num_workers=1)
    weight = torch.nn.Parameter(torch.zeros(1))
    seen, pids = [], {"training": [], "validation": [], "piped": []}
    for _ in range(3):
        rows = torch.cat(list(training))
        (weight * rows.sum()).sum().backward()
        with torch.no_grad():
            list(fetched_here)
            more = torch.cat(list(held_out))
            both = [float(one[0, 0] + other[-1, 0]) for one, other in zip(twice, twice)]
            list(also_evaluated)
            piped_by = torch.cat(list(piped)).unique().tolist()
        order = []
        for batch in also_evaluated:  # the training's, too, and evaluated while it goes on
            order += batch[:, 0].tolist()
            if len(order) == 4:
                with torch.no_grad():
                    list(also_evaluated)
        seen.append([rows[:, 0].tolist(), more[:, 0].tolist(), both, order[:4], len(order), torch.rand(1).item()])
        pids["piped"].append(piped_by)
        pids["training"].append(sorted(set(rows[:, 1].tolist())))
        pids["validation"].append(sorted(set(more[:, 1].tolist())))
    kept = {name: those[1] == those[2] for name, those in pids.items()}
    print(json.dumps({"seen": seen, "kept": kept}))

if __name__ == "__main__":
    main()
"""


@pytest.mark.usefixtures("without_coverage")
def test_only_the_workers_of_the_validation_are_kept(tmp_path: Path) -> None:
    script = tmp_path / "validating.py"
    script.write_text(VALIDATING)
    plain, _ = trained(script)
    found, said = trained(script, validation_workers_kept=True)
    assert "could not be set" not in said
    assert found["seen"] == plain["seen"]
    assert (plain["kept"], found["kept"]) == (
        {"training": False, "validation": False, "piped": False},
        {"training": False, "validation": True, "piped": True},
    )
