"""Lightning and the Hugging Face Trainer: their steps, validation, checkpoints and logs, in scripts as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.probe import events
from flatout.record import of_kinds
from tests.probe.parts import bare_script, counts, probed_script, texts
from tests.probe.recorded import Recorded

pytestmark = pytest.mark.slow


def both(tmp_path_factory: pytest.TempPathFactory, script: str) -> tuple[Recorded, Recorded]:
    ran = []
    for how in (bare_script, probed_script):
        folder: Path = tmp_path_factory.mktemp(how.__name__)
        ran.append(how(folder, script, str(folder / "out")))
    return ran[0], ran[1]


@pytest.fixture(scope="module")
def lightning(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorded, Recorded]:
    pytest.importorskip("pytorch_lightning", reason="pytorch-lightning is not installed")
    return both(tmp_path_factory, "lightning_fit.py")


@pytest.fixture(scope="module")
def hugging_face(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorded, Recorded]:
    pytest.importorskip("transformers", reason="transformers is not installed")
    return both(tmp_path_factory, "hugging_face.py")


def test_a_lightning_fit_has_the_same_losses(lightning: tuple[Recorded, Recorded]) -> None:
    bare, probed = lightning
    losses = [line for line in bare.out.splitlines() if "0x" in line]
    assert len(losses) == 12
    assert [line for line in probed.out.splitlines() if "0x" in line] == losses


def test_a_lightning_fit_leaves_one_event_of_each_phase_a_step(lightning: tuple[Recorded, Recorded]) -> None:
    main = lightning[1].main
    # 2 epochs of 6 training batches and 2 validation batches.
    assert counts(main.events, events.BATCH_WAIT, events.BACKWARD) == (16, 12)
    passes = main.of_kinds(events.FORWARD)
    assert [int((passes["b"] == mode).sum()) for mode in (events.TRAINS, events.HAS_TRAINED)] == [12, 4]
    assert texts(main, main.events, events.OPTIMIZER) == ["SGD"] * 12


def test_a_lightning_fit_tells_validation_checkpoints_and_logging(lightning: tuple[Recorded, Recorded]) -> None:
    main = lightning[1].main
    assert counts(main.events, events.VALIDATION) == (2,)
    assert "Lightning checkpoint" in texts(main, main.events, events.CHECKPOINT)
    assert main.of_kinds(events.CHECKPOINT)["a"].max() > 500
    assert "Lightning loggers" in texts(main, main.events, events.LOG)
    validations = main.of_kinds(events.VALIDATION)
    for wait in of_kinds(main.events, events.BATCH_WAIT):
        within = (validations["start"] <= wait["start"]) & (
            wait["start"] < validations["start"] + validations["duration"]
        )
        gradients = int(wait["b"]) >> 62 & 1
        assert within.any() == (not gradients)


@pytest.mark.slow
def test_a_hugging_face_training_has_the_same_losses(hugging_face: tuple[Recorded, Recorded]) -> None:
    bare, probed = hugging_face
    losses = [line for line in bare.out.splitlines() if "0x" in line]
    assert len(losses) == 4
    assert [line for line in probed.out.splitlines() if "0x" in line] == losses


@pytest.mark.slow
def test_a_hugging_face_training_leaves_one_event_of_each_phase_a_batch(
    hugging_face: tuple[Recorded, Recorded],
) -> None:
    main = hugging_face[1].main
    # 2 epochs of 4 training batches, two a step, and 4 evaluation batches.
    assert counts(main.events, events.BATCH_WAIT, events.BACKWARD) == (16, 8)
    passes = main.of_kinds(events.FORWARD)
    assert (int((passes["a"] == 1).sum()), int((passes["a"] == 0).sum())) == (8, 8)
    assert set(texts(main, passes, events.FORWARD)) == {"BertForSequenceClassification"}
    updates = texts(main, main.events, events.OPTIMIZER)
    assert updates.count("AdamW") == 4


@pytest.mark.slow
def test_a_hugging_face_training_tells_evaluation_checkpoints_and_logging(
    hugging_face: tuple[Recorded, Recorded],
) -> None:
    main = hugging_face[1].main
    assert texts(main, main.events, events.VALIDATION) == ["Hugging Face evaluate"] * 2
    checkpoints = texts(main, main.events, events.CHECKPOINT)
    assert checkpoints.count("Hugging Face checkpoint") == 2
    weights = [
        int(event["a"])
        for event, text in zip(main.of_kinds(events.CHECKPOINT), checkpoints, strict=True)
        if text.endswith(".safetensors")
    ]
    assert len(weights) == 2
    assert min(weights) > 1_000
    assert "Hugging Face log" in texts(main, main.events, events.LOG)
