"""Workers that a setting keeps train as those that each pass starts anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.probe.test_injections import trained

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
