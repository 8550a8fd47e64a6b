"""Trainings on small synthetic volumes: they learn, resume, are scored whole, and predict."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flatout.cli import main
from flatout.errors import UsageError
from flatout.loader.patch_loader import PatchLoader, scoring_plan, training_plan
from flatout.recipes.fitting import fit
from flatout.recipes.interfaces import EpochRecord, Fit
from flatout.recipes.reading import read_any_recipe, read_recipe
from flatout.recipes.training import train_recipe
from flatout.recipes.volume_data import VolumeData, open_volumes
from flatout.recipes.volume_demo import draw_volume, make_demo_volumes
from flatout.recipes.volume_lr_range import volume_range_test
from flatout.recipes.volume_outputs import predict_volume
from flatout.recipes.volume_predicting import Segmenter, load_segmenter
from flatout.recipes.volume_schema import VolumeRecipe
from flatout.recipes.volume_training import split_of
from tests.recipes.small_training import losses, quiet

TINY = ["patches.size=[16, 16, 16]", "patches.per_epoch=8", "patches.validation=4", "network.features=[4, 8]",
        "network.blocks=[1, 1]", "training.epochs=2", "patches.workers=1"]  # fmt: skip


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four staged volumes of 32³ voxels."""
    return make_demo_volumes(tmp_path_factory.mktemp("volumes") / "demo", cases=4, side=32)


def _recipe(volumes: Path, *more: str) -> VolumeRecipe:
    made = read_any_recipe("volume-demo", [*TINY, f"data.root={volumes}", *more])
    assert isinstance(made, VolumeRecipe)
    return made


def _train(recipe: VolumeRecipe, folder: Path, **options: Any) -> Fit:
    return train_recipe(recipe, open_volumes(recipe), folder, report=quiet, show_progress=False, **options)


@pytest.fixture(scope="module")
def trained(volumes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    _train(_recipe(volumes), folder)
    return folder


def test_a_training_leaves_checkpoints_scores_of_whole_volumes_and_a_picture(volumes: Path, trained: Path) -> None:
    assert read_any_recipe(str(trained / "recipe.yaml")) == _recipe(volumes)
    assert {"last.ckpt", "metrics.csv", "steps.csv", "classes.json", "intensity.json"} <= {
        path.name for path in trained.iterdir()
    }
    assert len(losses(trained)) == 2 * 4
    held = open_volumes(_recipe(volumes)).validation
    scores = json.loads((trained / "scores.json").read_text())
    assert tuple(scores["dice"]) == held and len(held) == 1 and 0 <= scores["mean"] <= 1
    assert (trained / "slice.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UsageError, match="for image-classification only"):
        read_recipe(str(trained / "recipe.yaml"))


class _AfterOne:
    planned_epochs = 2

    def resumed(self, records: object) -> str | None:
        return None

    def after_step(self, epoch: int, step: int) -> str | None:
        return None

    def after_epoch(self, record: EpochRecord) -> str | None:
        return "enough"


def test_a_resumed_training_has_the_losses_of_an_uninterrupted_one(
    volumes: Path, trained: Path, tmp_path: Path
) -> None:
    recipe = _recipe(volumes)
    data = open_volumes(recipe)
    parts = tmp_path / "parts"
    fit(recipe, data, parts, policies=[_AfterOne()], report=quiet, show_progress=False)
    torch.manual_seed(99)
    fit(recipe, data, parts, resume=True, report=quiet, show_progress=False)
    assert losses(parts) == losses(trained)
    with pytest.raises(UsageError, match="trained on other patches than the data has now"):
        other = data.split(data.validation, data.train)
        fit(recipe, other, parts, resume=True, report=quiet, show_progress=False)


def test_a_prediction_that_was_stopped_goes_on_and_has_the_same_voxels(
    volumes: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flatout.recipes.volume_outputs.PLANES", 8)
    monkeypatch.setattr("flatout.recipes.volume_outputs.CHUNK", 8)
    data = open_volumes(_recipe(volumes))
    volume, segmenter = data.image(data.validation[0]), load_segmenter(trained)
    for ending in (".npy", ".zarr"):
        whole, parts = tmp_path / f"whole{ending}", tmp_path / f"parts{ending}"
        assert predict_volume(segmenter, volume, whole) == 0

        def stop(done: int, planes: int) -> None:
            if done >= 16:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            predict_volume(segmenter, volume, parts, progress=stop)
        assert not parts.exists()
        assert predict_volume(segmenter, volume, parts) == 16
        assert np.array_equal(_voxels(whole), _voxels(parts)) and _voxels(whole).shape == (32, 32, 32)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts.npy", "parts.zarr", "whole.npy", "whole.zarr"]
    with pytest.raises(UsageError, match=r"ends in \.zarr or \.npy"):
        predict_volume(segmenter, volume, tmp_path / "labels.tif")


def _voxels(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.asarray(np.load(path))
    import zarr

    return np.asarray(zarr.open_array(path, mode="r")[:])


def test_the_mean_of_mirror_images_is_that_of_a_mirrored_volume(trained: Path) -> None:
    segmenter: Segmenter = load_segmenter(trained, mirrored=True)
    voxels = torch.from_numpy(draw_volume(3, 16)[0])[None]
    assert torch.allclose(segmenter.classify(voxels.flip(1)), segmenter.classify(voxels).flip(2), atol=1e-5)


def test_folds_hold_whole_volumes_out_each_once(volumes: Path, tmp_path: Path) -> None:
    recipe = _recipe(volumes, "folds.count=2", "training.epochs=1")
    data = open_volumes(recipe)
    split = split_of(recipe, data, tmp_path)
    assert sorted(name for fold in split for name in fold) == sorted((*data.train, *data.validation))
    assert split_of(recipe, data, tmp_path) == split
    with pytest.raises(UsageError, match="need as many volumes; there are 4"):
        split_of(_recipe(volumes, "folds.count=9"), data, tmp_path / "other")


@pytest.mark.slow
def test_a_training_with_folds_scores_every_volume(volumes: Path, tmp_path: Path) -> None:
    done = _train(_recipe(volumes, "folds.count=2", "training.epochs=1"), tmp_path / "run")
    assert "val/dice mean" in done.metrics and len(list((tmp_path / "run").glob("fold-*/scores.json"))) == 2
    scored = [
        name
        for path in sorted((tmp_path / "run").glob("fold-*/scores.json"))
        for name in json.loads(path.read_text())["dice"]
    ]
    assert sorted(scored) == [f"scan-{number}" for number in range(4)]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("data.validation=[scan-9]", "scan-9: is not there"),
        ("data.root=/nowhere", "/nowhere: no such folder"),
    ],
)
def test_wrong_data_are_refused_in_one_line(volumes: Path, setting: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        open_volumes(_recipe(volumes, setting))


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("network.blocks=[1]", "network.blocks: 1 numbers for 2 stages"),
        ("patches.size=[16, 16]", "is a list of 3 numbers"),
        ("augmentation.gamma_range=[2, 1]", "augmentation.gamma_range: 2 is above 1"),
        ("images.size=64", "unknown key"),
        ("task=volumes", "allowed are image-classification or volume-segmentation"),
        ("patches.per_epoch=1", "less than a batch of 2"),
    ],
)
def test_wrong_keys_are_refused_in_one_line(volumes: Path, setting: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        _recipe(volumes, setting)


def test_the_patch_loader_continues_inside_an_epoch_and_numbers_never_come_twice() -> None:
    plans = [training_plan(3, 2, rank, 2) for rank in range(2)]
    numbers = [n for epoch in range(2) for plan in plans for batch in plan(epoch) for n in batch]
    assert sorted(numbers) == list(range(24))
    assert sorted(n for rank in range(2) for batch in scoring_plan(7, 2, rank, 2)(0) for n in batch) == list(range(7))

    def read(number: int) -> tuple[np.ndarray, np.ndarray]:
        return np.full((2, 2, 2), number, np.uint8), np.zeros((2, 2, 2), np.uint8)

    with PatchLoader(read, plans[0], workers=2) as loader:
        whole = [batch.numbers for batch in loader]
        assert loader.epoch == 1 and len(whole) == len(loader) == 3
    with PatchLoader(read, plans[0], workers=1) as loader:
        first = next(iter(loader))
        assert first.images[:, 0, 0, 0].tolist() == list(first.numbers)
        state = loader.state_dict()
    with PatchLoader(read, plans[0], workers=1) as loader:
        loader.load_state_dict(state)
        assert [first.numbers, *(batch.numbers for batch in loader)] == whole


def test_a_draw_of_the_demo_hides_its_sheets_from_thresholds(volumes: Path) -> None:
    image, label = draw_volume(1)
    best = max(_dice(image > grey, label > 0) for grey in range(90, 150, 6))
    assert 0.5 < best < 0.7 and 0.05 < label.mean() < 0.15
    data: VolumeData = open_volumes(_recipe(volumes))
    assert data.classes[0] == "0" and len(data.classes) == 2


def _dice(found: np.ndarray, truth: np.ndarray) -> float:
    return float(2 * (found & truth).sum() / (found.sum() + truth.sum()))


def test_predictions_are_scored_and_held_out_volumes_told(
    volumes: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flatout.recipes.prediction_scores.lacking", lambda voxels: "MONAI is not there")
    assert main(["infer", str(trained), "--data", str(volumes), "--output", str(tmp_path / "out"), "--score"]) == 0
    said = capsys.readouterr().out
    content = json.loads((tmp_path / "out/scores.json").read_text())
    told = json.loads((trained / "scores.json").read_text())["dice"]
    held = {score["case"]: score["dice"] for score in content["scores"] if score["held_out"]}
    assert held == {case: pytest.approx(each["1"]) for case, each in told.items()} and len(content["scores"]) == 4
    assert {score["surface_dice"] for score in content["scores"]} == {None}
    assert "trained on" in said and "HD95 of" in said and "not measured, because MONAI is not there" in said


def _infer(trained: Path, data: Path, output: Path, *more: str) -> int:
    return main(["infer", str(trained), "--data", str(data), "--output", str(output), *more])


@pytest.mark.slow
def test_volumes_that_are_predicted_stay_until_they_or_the_networks_change(
    volumes: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(volumes, data)
    assert _infer(trained, data, out) == 0
    first = (out / "scan-0.zarr").stat().st_ino
    shutil.rmtree(out / "scan-1.zarr")
    (data / "scan-2" / "image.zarr" / "flatout.json").write_text('{"source": "another"}')
    capsys.readouterr()
    assert _infer(trained, data, out, "--json") == 0
    done = {Path(row["output"]).name: row["found_done"] for row in json.loads(capsys.readouterr().out)["volumes"]}
    assert done == {"scan-0.zarr": 32, "scan-1.zarr": 0, "scan-2.zarr": 0, "scan-3.zarr": 32}
    assert (out / "scan-0.zarr").stat().st_ino == first
    assert _infer(trained, data, out, "--mirrored", "--json") == 0
    assert {row["found_done"] for row in json.loads(capsys.readouterr().out)["volumes"]} == {0}


@pytest.mark.filterwarnings("ignore:.*a memory map reads")
def test_an_inference_replaces_no_volume_and_no_file_of_the_user(
    volumes: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(volumes, data)
    image, _ = draw_volume(5, 32)
    np.save(tmp_path / "mine.npy", image)
    (tmp_path / "other.npy").write_text("mine")
    (tmp_path / "out" / "scan-0.zarr").mkdir(parents=True)
    (tmp_path / "out" / "scan-0.zarr" / "zarr.json").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))}
    for source, output, said in (
        (tmp_path / "mine.npy", tmp_path / "mine.npy", "is the same folder as the source"),
        (data / "scan-0/image.zarr", data / "scan-0/image.zarr", "is the same folder as the source"),
        (data, data, "is the same folder as the source"),
        (data, data / "below", "lies in the source"),
        (tmp_path / "mine.npy", tmp_path / "other.npy", "is there already"),
        (data, tmp_path / "out", "is there already"),
        (data, tmp_path / "file", "no folder can be made there (it is a file)"),
    ):
        capsys.readouterr()
        assert _infer(trained, source, output) == 2
        assert said in capsys.readouterr().err.splitlines()[-1], output
    assert {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))} == before
    assert _infer(trained, tmp_path / "mine.npy", tmp_path / "other.npy", "--force") == 0
    assert np.load(tmp_path / "other.npy").shape == image.shape


@pytest.mark.filterwarnings("ignore:.*a memory map reads")
def test_volumes_that_cannot_be_predicted_are_named(
    volumes: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = draw_volume(5, 32)[0].astype(np.float32)
    image[20, 20, 20] = np.nan
    np.save(tmp_path / "nan.npy", image)
    assert _infer(trained, tmp_path / "nan.npy", tmp_path / "out.zarr") == 2
    assert "nan.npy: the box of (16, 16, 16) voxels at " in capsys.readouterr().err
    shutil.copytree(volumes, tmp_path / "data")
    content = (volumes / "volumes.json").read_text()
    (tmp_path / "data" / "volumes.json").write_text(content.replace('"scan-0"', '"../../evil"'))
    assert _infer(trained, tmp_path / "data", tmp_path / "out") == 2
    assert "id points out of the folder" in capsys.readouterr().err
    assert not (tmp_path / "out.zarr").exists() and not (tmp_path / "out").exists()


def test_one_volume_trains_and_what_is_missing_is_said(volumes: Path, tmp_path: Path) -> None:
    shutil.copytree(volumes, tmp_path / "data")
    found = json.loads((volumes / "volumes.json").read_text())
    (tmp_path / "data" / "volumes.json").write_text(json.dumps(found | {"cases": found["cases"][:1]}))
    recipe = _recipe(tmp_path / "data", "training.epochs=1")
    assert open_volumes(recipe).notes == (
        "no volume is held out: nothing is validated, and the last epoch is taken for the best",
    )
    done = _train(recipe, tmp_path / "run")
    assert done.best is None and done.last is not None and load_segmenter(tmp_path / "run").classes == ("0", "1")


def test_a_rate_is_suggested_for_patches_and_nothing_is_changed(volumes: Path, tmp_path: Path) -> None:
    recipe = _recipe(volumes)
    found = volume_range_test(recipe, min_lr=1e-4, max_lr=1.0, num_training=20, watch=lambda step, lr, loss: None)
    assert len(found.losses) == 20 and min(found.losses) >= 0 and found.batch_size == recipe.training.batch_size
    assert (
        found.losses
        == volume_range_test(recipe, min_lr=1e-4, max_lr=1.0, num_training=20, watch=lambda step, lr, loss: None).losses
    )
