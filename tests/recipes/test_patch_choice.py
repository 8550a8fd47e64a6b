"""Patch and batch for a card: what is tracked, what fits, and the recipe that comes of it."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import pytest

from flatout.cli import main
from flatout.errors import UsageError
from flatout.recipes.patch_choice import USED, choose_patch, with_patch
from flatout.recipes.reading import read_any_recipe
from flatout.recipes.volume_demo import make_demo_volumes
from flatout.recipes.volume_pipeline import build_network
from flatout.recipes.volume_schema import VolumeRecipe
from flatout.segmentation import fake_step


def recipe(*more: str, name: str = "volume-demo") -> VolumeRecipe:
    found = read_any_recipe(name, more)
    assert isinstance(found, VolumeRecipe)
    return found


def test_a_step_without_content_takes_what_a_real_one_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_network(recipe("patches.size=[16, 32, 32]", "network.features=[4, 8]", "network.blocks=[1, 1]"), 3)

    def tracked() -> fake_step.Tracked:
        return fake_step.tracked_step(model, 3, (16, 32, 32), 2, half=True, adaptive=True)

    fake = tracked()
    monkeypatch.setattr(fake_step, "FakeTensorMode", contextlib.nullcontext)
    monkeypatch.setattr(fake_step, "FakeCopyMode", contextlib.nullcontext)
    real = tracked()
    assert fake.peak_bytes == pytest.approx(real.peak_bytes, rel=0.02) and fake.peak_bytes > 1 << 20
    weights = sum(one.numel() * 4 for one in model.parameters())
    assert fake.kinds["optstate"] == pytest.approx(2 * weights, rel=0.01)


@pytest.mark.slow
def test_a_larger_card_gets_no_smaller_patches_and_what_is_chosen_fits() -> None:
    voxels = []
    for memory in (2 << 30, 16 << 30):
        found = choose_patch(recipe("network.features=[8, 16, 32, 64]", "network.blocks=[1, 1, 1, 1]"), "card", memory)
        assert found.needed_bytes <= USED * memory and found.batch_size >= 2
        assert f"chosen: {found.batch_size} of {found.patch[0]}³" in found.lines[-1]
        voxels.append(math.prod(found.patch) * found.batch_size)
    assert voxels == sorted(voxels) and voxels[0] < voxels[-1]


@pytest.mark.slow
def test_patches_end_at_the_volumes_and_at_what_the_network_sees() -> None:
    flat = choose_patch(recipe(), "card", 80 << 30, shapes=[(20, 300, 300)] * 3)
    assert flat.patch == (32, 64, 64)  # three stages: 16 voxels at the lowest resolution
    few = 0.05 * 3 * 20 * 300 * 300 / math.prod(flat.patch)
    assert flat.batch_size == max(2, int(few))


def test_a_small_patch_leaves_stages_out() -> None:
    cut = with_patch(recipe(name="volume-residual-unet"), (32, 32, 32))
    assert cut.network.features == (32, 64, 128, 256) and cut.network.blocks == (1, 3, 4, 6)
    build_network(cut, 2)
    whole = with_patch(recipe(name="volume-residual-unet"), (128, 128, 128))
    assert len(whole.network.features) == 6


def test_a_card_that_is_too_small_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--gpu card: not even 2 patches of 32³ voxels fit"):
        choose_patch(recipe(), "card", 1 << 30)


def test_the_command_prints_a_recipe_that_can_be_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    staged = make_demo_volumes(tmp_path / "staged", cases=4, side=32)
    assert main(["recipes", "volume-demo", "--gpu", "T4", "--data", str(staged)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("# T4, assumed (") and "16.0 GiB, of which 90%" in shown
    (tmp_path / "mine.yaml").write_text(shown)
    made = read_any_recipe(str(tmp_path / "mine.yaml"))
    assert isinstance(made, VolumeRecipe) and made.patches.size == (32, 32, 32) and made.training.batch_size == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["demo", "--gpu", "A10"], "demo trains on images"),
        (["volume-demo", "--gpu", "nothing"], "no figures of this GPU are known"),
        (["volume-demo", "--gpu", "24 apples"], "no figures of this GPU are known"),
        (["volume-demo", "--data", "x"], "--data: belongs to --gpu"),
        (["--gpu", "A10"], "--gpu: of which recipe?"),
        (["volume-demo", "--gpu", "24GB", "--data", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipes", *words]) == 2
    shown = capsys.readouterr().err
    assert said in shown and shown.count("\n") == 1
