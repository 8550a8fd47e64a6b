"""What the probe writes is what the reader knows: a field that one of them forgets is lost in silence."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flatout.record import fields
from flatout.record.decoding import Decoder
from tests.end_to_end.profiling import profile, script

LOADER_EACH_EPOCH = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def main():
        net = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for epoch in range(3):
            loader = DataLoader(TensorDataset(torch.randn(64, 8)), 4, num_workers=1)
            for step, (x,) in enumerate(loader):
                loss = net(x).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    if __name__ == "__main__":
        main()
"""


def lost(written: Any, read: Any, where: str) -> Iterator[str]:
    """Fields of objects that were written and are not among those read."""
    if isinstance(written, dict) and isinstance(read, dict):
        for name, value in written.items():
            if name not in read and value is not None:
                yield f"{where}.{name}"
            else:
                yield from lost(value, read.get(name), f"{where}.{name}")
    elif isinstance(written, list) and isinstance(read, list):
        for one, other in zip(written, read, strict=True):
            yield from lost(one, other, where)


def of_file(path: Path, decode: Decoder, lines: bool = False) -> Iterator[str]:
    text = path.read_text("utf-8")
    for line in text.splitlines() if lines else [text]:
        damage: list[str] = []
        written = json.loads(line)
        yield from lost(written, decode(written, damage), path.name)
        yield from (f"{path.name}: damaged {name}" for name in damage)


@pytest.mark.slow
def test_no_field_of_a_real_recording_is_unknown_to_its_reader(tmp_path: Path) -> None:
    done = profile(tmp_path, sys.executable, script(tmp_path, LOADER_EACH_EPOCH), options=["--full"])
    assert done.code == 0 and done.run is not None, done.err
    found = list(of_file(done.run / "run.json", fields.RUN))
    found += of_file(done.run / "machine.json", fields.MACHINE)
    found += of_file(done.run / "system.jsonl", fields.SAMPLE, lines=True)
    processes = sorted((done.run / "processes").iterdir())
    assert any("rebuilt" in path.read_text("utf-8") for path in processes if path.suffix == ".names")
    for path in processes:
        if path.suffix == ".json":
            found += of_file(path, fields.PROCESS)
        elif path.suffix == ".names":
            found += of_file(path, fields.names_entry, lines=True)
    assert not found
