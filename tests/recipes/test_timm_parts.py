"""What recipes take from timm: data configuration, optimizers, losses, mixing, averages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.models import get_pretrained_cfg

from flatout.errors import UsageError
from flatout.loader.interfaces import Batch
from flatout.recipes.data_config import resolve_images
from flatout.recipes.image_pipeline import make_loader
from flatout.recipes.image_sections import Training
from flatout.recipes.image_task import ImageTask
from flatout.recipes.models import build_model
from flatout.recipes.objective import first_image_step, make_criterion, make_finish
from flatout.recipes.optimization import build_optimizer
from flatout.recipes.prerequisites import check_prerequisites, check_weights
from flatout.recipes.reading import read_recipe
from flatout.recipes.schema import Recipe
from flatout.recipes.trainer import MovingAverage


def wanted(*settings: str) -> Recipe:
    return read_recipe("demo", ["model.name=test_resnet", *settings])


def test_pretrained_weights_bring_the_images_that_they_were_trained_with() -> None:
    name = "model.name=vit_base_patch16_224.augreg_in21k_ft_in1k"
    made, said = resolve_images(read_recipe("imagenet-resnet50", [name, "model.weights=hub"]))
    assert made.images.mean == made.images.std == (0.5, 0.5, 0.5)
    assert (made.images.size, made.images.interpolation, made.images.validation_crop) == (224, "bicubic", 0.9)
    assert "interpolation bicubic" in said and "as the weights were trained" in said
    own = ["images.mean=[0.1, 0.2, 0.3]", "images.size=192", "images.interpolation=bilinear"]
    kept, _ = resolve_images(read_recipe("imagenet-resnet50", [name, "model.weights=hub", *own]))
    assert (kept.images.mean, kept.images.size, kept.images.interpolation) == ((0.1, 0.2, 0.3), 192, "bilinear")
    plain, _ = resolve_images(read_recipe("imagenet-resnet50", [name]))
    assert plain.images.mean == (0.485, 0.456, 0.406) and plain.images.interpolation == "bilinear"
    squashed = next(name for name in timm.list_pretrained() if get_pretrained_cfg(name).crop_mode == "squash")
    settings = [f"model.name={squashed}", "model.weights=hub"]
    assert resolve_images(read_recipe("imagenet-resnet50", settings))[0].images.crop_mode == "squash"


def test_a_model_of_a_fixed_size_is_built_for_the_size_of_the_recipe() -> None:
    recipe = resolve_images(wanted("model.name=test_vit", "images.size=64"))[0]
    logits = build_model(recipe, 3)(torch.zeros(2, 3, 64, 64))
    assert logits.shape == (2, 3)


def test_images_that_are_too_small_for_a_model_are_one_line() -> None:
    recipe = resolve_images(wanted("model.name=inception_v3", "images.size=32"))[0]
    model = build_model(recipe, 3)
    refused = r"images\.size: the first step of inception_v3 with images of 32 × 32 pixels.*give another size"
    with pytest.raises(UsageError, match=refused), first_image_step(recipe):
        model(torch.zeros(2, 3, 32, 32))


def test_grey_models_get_one_channel() -> None:
    recipe = resolve_images(wanted("model.in_chans=1", "images.size=32"))[0]
    batch = Batch(
        images=torch.full((2, 3, 32, 32), 128, dtype=torch.uint8),
        labels=torch.tensor([0, 1]),
        indices=torch.tensor([0, 1]),
        flips=torch.tensor([False, True]),
    )
    images, _ = make_finish(recipe, 3)(batch, 0, training=True)
    assert images.shape == (2, 1, 32, 32)
    assert build_model(recipe, 3).eval()(images).shape == (2, 3)


@pytest.mark.parametrize("name", ["sgd", "adamw", "lamb", "lion", "rmsprop", "adafactor", "muon"])
def test_optimizers_of_timm_make_a_step(name: str) -> None:
    recipe = resolve_images(wanted(f"optimizer.name={name}", "images.size=32"))[0]
    model = build_model(recipe, 3)
    optimizer = build_optimizer(recipe, model, 1e-3)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    model(torch.rand(4, 3, 32, 32)).square().sum().backward()
    optimizer.step()
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_layers_keep_their_share_of_the_rate_and_biases_are_not_decayed() -> None:
    recipe = resolve_images(wanted("optimizer.layer_decay=0.5", "optimizer.weight_decay=0.1"))[0]
    groups = build_optimizer(recipe, build_model(recipe, 3), 1e-3).param_groups
    assert {group["lr_scale"] for group in groups} >= {1.0, 0.5, 0.25}
    assert {group["weight_decay"] for group in groups} == {0.0, 0.1}
    assert all(
        group["weight_decay"] == 0 for group in groups if all(parameter.ndim <= 1 for parameter in group["params"])
    )


def test_an_option_that_an_optimizer_does_not_have_is_one_line() -> None:
    recipe = resolve_images(wanted("optimizer.options={speed: 3}"))[0]
    with pytest.raises(UsageError, match=r"optimizer: adamw cannot be made as the recipe says: .*speed"):
        build_optimizer(recipe, build_model(recipe, 3), 1e-3)


def test_binary_losses_take_classes_and_mixed_targets() -> None:
    logits, targets = torch.tensor([[4.0, -4.0], [-4.0, 4.0]]), torch.tensor([0, 1])
    loss = make_criterion(Training(loss="bce", label_smoothing=0.0))
    mixed = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert loss(logits, targets) == pytest.approx(0.018, abs=1e-3) == loss(logits, mixed)
    hard = make_criterion(Training(loss="bce", label_smoothing=0.0, bce_threshold=0.2))
    assert hard(logits, torch.tensor([[0.6, 0.1], [0.1, 0.6]])) == pytest.approx(float(loss(logits, targets)))


def test_poly_and_asymmetric_losses_and_sums_over_classes() -> None:
    logits, targets = torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])

    def loss(**settings: Any) -> float:
        return float(make_criterion(Training(label_smoothing=0.0, **settings))(logits, targets))

    assert loss(loss="poly", poly_epsilon=0.0) == pytest.approx(loss())
    assert 0 < loss(loss="asymmetric") < loss()
    assert loss(loss="bce", bce_sum=True) == pytest.approx(2 * loss(loss="bce"))
    assert loss(loss="bce", bce_positive_weight=5.0) > loss(loss="bce")


def test_a_loss_or_schedule_that_an_older_timm_lacks_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from timm import loss, scheduler

    monkeypatch.delattr(loss, "PolyCrossEntropy")
    monkeypatch.delattr(scheduler, "WSDLRScheduler")
    with pytest.raises(UsageError, match=r"training\.loss: poly: timm .* does not have it: pip install"):
        check_prerequisites(wanted("training.loss=poly"))
    with pytest.raises(UsageError, match=r"schedule\.name: wsd: timm .* does not have it: pip install"):
        check_prerequisites(wanted("schedule.name=wsd"))


def test_models_take_options_and_a_first_bias() -> None:
    settings = ["model.head_bias=-2.5", "model.head_scale=0.001", "model.options={global_pool: max}"]
    model: Any = build_model(resolve_images(wanted(*settings, "images.size=32"))[0], 3)
    assert model.get_classifier().bias.tolist() == [-2.5] * 3 and model.get_classifier().weight.abs().max() < 1e-2
    assert model.global_pool.pool_type == "max"
    unknown = resolve_images(wanted("model.options={speed: 3}"))[0]
    with pytest.raises(UsageError, match=r"model: test_resnet does not take what the recipe asks for: .*speed"):
        build_model(unknown, 3)


@pytest.mark.parametrize("mode", ["norm", "value", "agc"])
def test_gradients_are_clipped_as_the_recipe_says(mode: str) -> None:
    recipe = resolve_images(wanted(f"training.clip_mode={mode}", "training.clip_gradients=0.01", "images.size=32"))[0]
    model = build_model(recipe, 3)
    (model(torch.rand(4, 3, 32, 32)) * 100).square().sum().backward()
    grads = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    before = [grad.clone() for grad in grads]
    ImageTask(recipe, model, 3, 0.1).configure_gradient_clipping(torch.optim.SGD(model.parameters(), 0.1))
    if mode == "norm":
        assert float(torch.stack([grad.norm() for grad in grads]).norm()) == pytest.approx(0.01, rel=1e-3)
    elif mode == "value":
        assert max(float(grad.abs().max()) for grad in grads) == pytest.approx(0.01)
    else:
        assert torch.equal(before[-1], grads[-1]) and torch.equal(before[-2], grads[-2])  # the head
        assert not torch.equal(before[0], grads[0])


def test_mixing_ends_and_erasing_repeats_and_the_generators_stay() -> None:
    settings = ["training.mixup=0.2", "training.mix_off_epoch=3", "images.erasing=1.0", "images.erasing_mode=const"]
    finish = make_finish(resolve_images(wanted(*settings, "images.size=16"))[0], 3)
    batch = Batch(
        images=torch.randint(1, 255, (4, 3, 16, 16), dtype=torch.uint8),
        labels=torch.tensor([0, 1, 2, 0]),
        indices=torch.arange(4),
        flips=torch.zeros(4, dtype=torch.bool),
    )
    state = torch.get_rng_state()
    images, targets = finish(batch, 7, training=True, epoch=2)
    again, _ = finish(batch, 7, training=True, epoch=2)
    assert targets.shape == (4, 3) and torch.equal(images, again)
    erased, labels = finish(batch, 7, training=True, epoch=3)
    assert torch.equal(labels, batch.labels) and (erased == 0).any(1).any()
    assert torch.equal(finish(batch, 7, training=False)[0] == 0, torch.zeros(4, 3, 16, 16, dtype=torch.bool))
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(("warmup", "step", "share"), [(False, 1, 0.1), (True, 1, 2 ** (-2 / 3)), (True, 10**6, 0.1)])
def test_a_moving_average_may_begin_short(warmup: bool, step: int, share: float) -> None:
    average: Any = MovingAverage(0.9, warmup)
    average._step = step
    own, current = [torch.zeros(2)], [torch.ones(2)]
    average._kwargs["multi_avg_fn"](own, current, 1)
    assert own[0].tolist() == pytest.approx([share] * 2)


def test_validation_has_its_own_batch_size(photographs: Path) -> None:
    from flatout.recipes.datasets import open_data

    settings = ["training.validation_batch_size=24", "images.workers=1", f"data.root={photographs}"]
    recipe = resolve_images(wanted(*settings, "images.size=32"))[0]
    data = open_data(recipe)
    with make_loader(recipe, data, True) as train, make_loader(recipe, data, False) as validation:
        assert train.order.batch_size == 32 and validation.order.batch_size == 24


def test_half_precision_on_a_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"training\.precision: fp16 needs a GPU.*auto, fp32 or bf16"):
        check_prerequisites(wanted("training.precision=fp16"))


def test_weights_that_cannot_be_fetched_are_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UsageError, match=r"model\.weights: .*not in the cache and http://127.0.0.1:9 does not answer"):
        check_weights("resnet18", "hub")
    (tmp_path / "models--timm--resnet18.a1_in1k").mkdir()
    check_weights("resnet18", "hub")
    with pytest.raises(UsageError, match=r"data\.root: hf://somebody/flowers: is not in the cache.*save_to_disk"):
        check_prerequisites(wanted("data.root=hf://somebody/flowers"))
    (tmp_path / "datasets--somebody--flowers").mkdir()
    check_prerequisites(wanted("data.root=hf://somebody/flowers"))
    with pytest.raises(UsageError, match="timm has no pretrained weights of resnet14d_never"):
        check_weights("resnet14d_never", "hub")
