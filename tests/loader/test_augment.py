"""What is drawn for an image depends on seed, epoch and index alone, and changes what it should."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from flatout.errors import UnreadableImage, UsageError
from flatout.loader.augment import NOTHING, Augmentation
from flatout.loader.image_loader import ImageLoader
from flatout.loader.order import Order
from flatout.loader.sources.folders import ImageFolderSource
from tests.loader.photographs import make_class_folders

EVERYTHING = {
    "vertical_flip": Augmentation(vertical_flip=1.0),
    "randaugment": Augmentation(policy="randaugment", magnitude=15, operations=4),
    "trivialaugment": Augmentation(policy="trivialaugment"),
    "autoaugment": Augmentation(policy="autoaugment"),
    "deviation": Augmentation(policy="randaugment", deviation=3.0, probability=0.5, operations=6),
    "augmix": Augmentation(policy="augmix"),
    "threeaugment": Augmentation(policy="threeaugment"),
    "jitter": Augmentation(jitter=0.4),
    "grey": Augmentation(grey=1.0),
    "blur": Augmentation(blur=1.0),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ImageFolderSource:
    return ImageFolderSource(make_class_folders(tmp_path_factory.mktemp("images"), 3, 6, 64) / "train")


def pixels(source: ImageFolderSource, workers: int, **options: object) -> torch.Tensor:
    made = ImageLoader(
        source, range(18), size=32, batch_size=6, training=True, seed=5, backend="threads", workers=workers, **options
    )  # type: ignore[arg-type]
    with made as loader:
        return torch.cat([batch.images.clone() for batch in loader])


@pytest.mark.parametrize("name", EVERYTHING)
def test_an_augmentation_changes_pixels_the_same_way_whatever_the_threads(source: ImageFolderSource, name: str) -> None:
    torch.manual_seed(1)
    one = pixels(source, 1, augmentation=EVERYTHING[name])
    torch.manual_seed(2)
    random.seed(2)
    three = pixels(source, 3, augmentation=EVERYTHING[name])
    assert torch.equal(one, three)
    assert not torch.equal(one, pixels(source, 1))


def test_a_flip_mirrors_and_grey_has_equal_channels_and_nothing_changes_nothing() -> None:
    image = torch.randint(0, 255, (8, 8, 3), dtype=torch.uint8)
    for augmentation, expected in (
        (replace(NOTHING), image),
        (EVERYTHING["vertical_flip"], image.flip(0)),
    ):
        changed = image.clone()
        augmentation.apply(changed, random.Random(0))
        assert torch.equal(changed, expected)
    grey = image.clone()
    EVERYTHING["grey"].apply(grey, random.Random(0))
    assert torch.equal(grey[..., 0], grey[..., 1]) and torch.equal(grey[..., 1], grey[..., 2])


def test_repeats_are_other_views_of_fewer_images_as_many_in_all(source: ImageFolderSource) -> None:
    order = Order(count=18, batch_size=6, shuffle=True, drop_last=True, seed=1, repeats=3)
    places = order.places(0)
    assert len(places) == 18 and len({place % 18 for place in places}) == 6 and len(set(places)) == 18
    ranks = [replace(order, rank=rank, world_size=3).places(0) for rank in range(3)]
    assert [place % 18 for place in ranks[0]] == [place % 18 for place in ranks[1]]  # each rank another view
    with ImageLoader(
        source, range(18), size=32, batch_size=18, training=True, backend="threads", workers=2, repeats=3
    ) as loader:
        (batch,) = list(loader)
    first = batch.images[batch.indices == batch.indices[0]]
    assert len(first) == 3 and not torch.equal(first[0], first[1])


def test_bicubic_differs_from_bilinear_and_agrees_between_decoders(source: ImageFolderSource) -> None:
    made = {
        (decoder, way): pixels(source, 1, decoder=decoder, interpolation=way).float()
        for decoder in ("torchvision", "pillow")
        for way in ("bilinear", "bicubic")
    }
    for way in ("bilinear", "bicubic"):
        assert (made["torchvision", way] - made["pillow", way]).abs().mean() < 0.5
    assert (made["pillow", "bilinear"] - made["pillow", "bicubic"]).abs().mean() > 0.5


def test_a_link_that_leads_nowhere_is_named_or_skipped(tmp_path: Path) -> None:
    root = make_class_folders(tmp_path, 3, 6, 64) / "train"
    (root / "astronaut0/000.jpg").unlink()
    (root / "astronaut0/000.jpg").symlink_to("nowhere.jpg")
    source = ImageFolderSource(root)
    with pytest.raises(UnreadableImage, match=r"astronaut0/000\.jpg: No such file.*data\.bad_files: skip"):
        pixels(source, 1)
    options = {"size": 32, "batch_size": 6, "training": False, "workers": 1, "backend": "threads", "bad_files": "skip"}
    with ImageLoader(source, range(18), **options) as loader:  # type: ignore[arg-type]
        assert sum(len(batch) for batch in loader) == 18
        assert [Path(image.where).name for image in loader.bad] == ["000.jpg"]


def test_what_is_left_out_of_folders_is_said(tmp_path: Path) -> None:
    root = make_class_folders(tmp_path, 3, 6, 64) / "train"
    (root / "empty").mkdir()
    (root / "astronaut0/readme.txt").write_text("")
    (root / "stray.jpg").write_bytes((root / "astronaut0/000.jpg").read_bytes())
    source = ImageFolderSource(root)
    assert "empty" not in source.classes and len(source.classes) == 3
    said = "\n".join(source.notes)
    assert "1 folder without images are no classes: empty" in said
    assert "1 image outside of the class folders" in said and "1 file left out, no images: 1 .txt" in said
    with pytest.raises(UsageError, match=r"no images in it.*1 other file"):
        ImageFolderSource(only(tmp_path / "other"))


def only(folder: Path) -> Path:
    (folder / "class").mkdir(parents=True)
    (folder / "class/readme.txt").write_text("")
    return folder


@pytest.mark.parametrize("kind", [".avif", ".jp2"])
def test_newer_formats_are_images(tmp_path: Path, kind: str) -> None:
    from PIL import Image

    (tmp_path / "class").mkdir()
    Image.new("RGB", (40, 40), (200, 30, 30)).save(tmp_path / f"class/red{kind}")
    source = ImageFolderSource(tmp_path)
    with ImageLoader(source, [0], size=32, batch_size=1, training=False, workers=1, backend="threads") as loader:
        (batch,) = list(loader)
    assert batch.images[0, 0].float().mean() > 180


def test_splits_are_views_of_the_same_crop_and_the_first_is_not_augmented(source: ImageFolderSource) -> None:
    plain = pixels(source, 1)
    augmentation = Augmentation(policy="augmix", jitter=0.4)
    views = pixels(source, 3, augmentation=augmentation, splits=3)
    assert torch.equal(views, pixels(source, 1, augmentation=augmentation, splits=3)) and len(views) == 54
    for number, batch in enumerate(views.split(18)):
        clean, second, third = batch.split(6)
        assert torch.equal(clean, plain[6 * number : 6 * number + 6])
        assert not torch.equal(clean, second) and not torch.equal(second, third)
