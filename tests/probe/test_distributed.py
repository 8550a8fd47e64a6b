"""Processes that train together compute the same with and without the probe, and each is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.parts import SCRIPTS, importing
from tests.probe.recorded import Recorded, run_bare, run_probed


@pytest.mark.slow
def test_ddp_and_fsdp2_give_the_same_losses_bit_for_bit(tmp_path: Path) -> None:
    source = (SCRIPTS / "distributed.py").read_text()
    ran: list[Recorded] = []
    for name, run in (("bare", run_bare), ("probed", run_probed)):
        folder = tmp_path / name
        folder.mkdir()
        ran.append(run(tmp_path, source, str(folder), env=importing(None)))
    bare, probed = ran
    assert bare.code == probed.code == 0, probed.err[-3000:]
    assert probed.out == bare.out
    assert len(bare.out.split()) == 2 * 2 * 2 * 4  # ranks, models, epochs, steps
    assert probed.faults() == []
    assert probed.run is not None
    counts = [probed.counts(process) for process in probed.run.processes]
    trained = [count for count in counts if count["BACKWARD"]]
    assert [(count["BACKWARD"], count["FORWARD"], count["OPTIMIZER"]) for count in trained] == 2 * [(16, 16, 32)]
    assert all(count["COLLECTIVE"] >= 16 for count in trained)
