"""Sentences as public guides and issues word them: true ones are not called off, others are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.logs.postmortem import read_logs

TRUE = {
    "a goal is not a measurement": "The goal is 10 minutes per epoch. Now it takes 56.7 minutes per epoch.\n"
    "20 minutes per epoch would need a 2.8x speed-up, 10 minutes per epoch one of 5.7x.\n",
    "a part of a step is not the step": "Batches per epoch: 34,221\n- data loading: 0.0442 s/batch\n"
    "- The epoch takes 56.7 min per epoch.\n",
    "a larger batch, not a faster one": "A medium batch (4x larger) wants a learning rate of about 2x.\n"
    "The larger batch needs 2x the memory.\n",
    "a table that is right": "| metric | before | after | gain |\n|---|---|---|---|\n| epoch | 120 s | 50 s | 2.4x |\n",
    "a log's clock is not a duration": "26-11-02 08:46:35.804 - INFO: End of epoch 118 / 200 \t Time Taken: 5.06 sec\n"
    "26-11-02 08:46:40.874 - INFO: End of epoch 119 / 200 \t Time Taken: 5.07 sec\n",
    "a slow-down": "With 10 workers it was a 3.6x performance regression: batch size 750 stays.\n",
    "a document on errors": "# CUDA out of memory\n- `RuntimeError: CUDA out of memory` means: too large a batch.\n",
}


@pytest.mark.parametrize("name", TRUE)
def test_what_is_true_is_not_called_off(name: str, tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(TRUE[name])
    read = read_logs([tmp_path / "notes.md"])
    assert [(one.id, one.found) for one in read.claims if one.verdict != "consistent"] == []
    assert read.files[0].facts.troubles == []
    if name.startswith("a log's clock"):
        assert [one.time.seconds for one in read.files[0].epochs] == [5.06, 5.07]


def test_a_table_that_is_wrong_is_called_off(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(TRUE["a table that is right"].replace("2.4x", "5x"))
    (claim,) = read_logs([tmp_path / "notes.md"]).claims
    assert (claim.id, claim.verdict, claim.off_by) == ("table_rows", "off", pytest.approx(5 / 2.4))


def test_a_notebooks_bar_without_its_picture_is_read(tmp_path: Path) -> None:
    (tmp_path / "out.txt").write_text("Epoch 1/1: 100%\n 271/271 [05:06<00:00,  1.08s/it, loss=0.43]\n")
    (epoch,) = read_logs([tmp_path / "out.txt"]).files[0].epochs
    assert (epoch.time.steps, epoch.time.seconds) == (271, 306)
