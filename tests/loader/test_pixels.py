"""Pixels of every decoder against the reference: Pillow's antialiased crop and resize of the same box."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from flatout.errors import UsageError
from flatout.loader.crops import CentreCrop, RandomCrop, generator
from flatout.loader.decoders import make_decoder
from flatout.loader.interfaces import BadImage, Box
from tests.loader.photographs import picture

SIZE = 96


class Fixed:
    def __init__(self, box: Box) -> None:
        self._box = box

    def box(self, width: int, height: int) -> Box:
        return self._box


class Seen:
    """Looks at everything and remembers the size that it was asked for."""

    size = (0, 0)

    def box(self, width: int, height: int) -> Box:
        self.size = (width, height)
        return Box(0, 0, width, height)


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def decoded(name: str, data: bytes, crop: object, size: int = SIZE) -> np.ndarray:
    slot = torch.zeros((size, size, 3), dtype=torch.uint8)
    make_decoder(name).decode_into(data, crop, slot)  # type: ignore[arg-type]
    return slot.numpy()


# Mean and largest difference (0-255) that are allowed. torch rounds its weights to 16 bits.
@pytest.mark.parametrize(("name", "mean", "most"), [("torchvision", 0.3, 4), ("pillow", 0.0, 0)])
def test_pixels_are_those_of_the_reference_for_the_same_box(name: str, mean: float, most: int) -> None:
    data = encoded(picture("coffee"), quality=92, subsampling=0)
    box = Box(31, 17, 301, 230)
    reference = Image.open(io.BytesIO(data)).resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=(31, 17, 332, 247))
    cropped = Image.open(io.BytesIO(data)).crop((31, 17, 332, 247)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    against = reference if name == "pillow" else cropped
    apart = np.abs(decoded(name, data, Fixed(box)).astype(int) - np.asarray(against).astype(int))
    assert apart.mean() <= mean and apart.max() <= most


ODD = {
    "grey JPEG": encoded(picture("chelsea").convert("L")),
    "progressive JPEG": encoded(picture("chelsea"), progressive=True, quality=90),
    "CMYK JPEG": encoded(picture("chelsea").convert("CMYK"), quality=95),
    "PNG": encoded(picture("chelsea"), "PNG"),
    "palette PNG": encoded(picture("chelsea").convert("P"), "PNG"),
    "PNG with alpha": encoded(picture("chelsea").convert("RGBA"), "PNG"),
    "WebP": encoded(picture("chelsea"), "WEBP", quality=90),
    "GIF": encoded(picture("chelsea"), "GIF"),
}


@pytest.mark.parametrize("name", ["torchvision", "pillow"])
@pytest.mark.parametrize("kind", ODD)
def test_odd_files_are_read_as_the_same_picture(name: str, kind: str) -> None:
    whole = picture("chelsea")
    got = decoded(name, ODD[kind], Seen()).astype(int)
    reference = np.asarray(whole.resize((SIZE, SIZE), Image.Resampling.BILINEAR)).astype(int)
    if kind == "grey JPEG":
        assert (got[..., 0] == got[..., 1]).all()
        reference = np.asarray(whole.convert("L").resize((SIZE, SIZE))).astype(int)[..., None]
    assert np.abs(got - reference).mean() < 12


def test_sixteen_bits_become_the_high_eight() -> None:
    ramp = (np.arange(SIZE * SIZE, dtype=np.uint32).reshape(SIZE, SIZE) * 7).astype(np.uint16)
    got = decoded("torchvision", encoded(Image.fromarray(ramp), "PNG"), Seen())
    assert (got[..., 0] == ramp >> 8).all()


@pytest.mark.parametrize("name", ["torchvision", "pillow"])
@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_a_turned_photograph_is_upright_and_cropped_upright(name: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    whole = picture("coffee")
    turned = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}[orientation]
    data = encoded(whole.transpose(turned), exif=exif, quality=95)
    crop = Seen()
    got = decoded(name, data, crop).astype(int)
    assert crop.size == whole.size
    assert np.abs(got - np.asarray(whole.resize((SIZE, SIZE))).astype(int)).mean() < 4


@pytest.mark.parametrize("name", ["torchvision", "pillow"])
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "an empty file"),
        (b"not an image at all", "no known image format"),
        (encoded(picture("chelsea"))[:3000], "JPEG"),
        (encoded(picture("chelsea"), "PNG")[:3000], "PNG"),
    ],
)
def test_what_is_no_whole_image_is_refused_with_the_reason(name: str, data: bytes, said: str) -> None:
    with pytest.raises(BadImage, match=said):
        decoded(name, data, Seen())


def test_scaled_decoding_of_a_large_photograph_stays_close() -> None:
    large = picture("coffee").resize((2000, 1333), Image.Resampling.LANCZOS)
    slot = torch.zeros((SIZE, SIZE, 3), dtype=torch.uint8)
    data = encoded(large, quality=92)
    make_decoder("pillow", scaled=True).decode_into(data, Fixed(Box(200, 100, 1200, 900)), slot)
    apart = np.abs(slot.numpy().astype(int) - decoded("pillow", data, Fixed(Box(200, 100, 1200, 900))).astype(int))
    assert 0 < apart.mean() < 6


def test_an_unknown_decoder_is_refused_with_what_there_is() -> None:
    with pytest.raises(UsageError, match="torchvision, pillow"):
        make_decoder("ffcv")


def test_random_boxes_follow_torchvisions_distribution() -> None:
    from torchvision.transforms import RandomResizedCrop

    torch.manual_seed(0)
    image = torch.zeros((3, 375, 500))
    theirs = np.array([RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)])
    ours = np.array([RandomCrop(generator(0, 0, n)).box(500, 375) for n in range(4000)])
    for quantity in (lambda w, h: w * h, lambda w, h: w / h):
        a, b = quantity(theirs[:, 3], theirs[:, 2]), quantity(ours[:, 2], ours[:, 3])
        for share in (10, 50, 90):
            assert np.percentile(b, share) == pytest.approx(np.percentile(a, share), rel=0.08)
    inside = ours[:, 0] + ours[:, 2] <= 500
    assert inside.all() and (ours[:, 1] + ours[:, 3] <= 375).all() and (ours >= 0).all()


def test_an_extreme_image_gets_the_largest_middle_box() -> None:
    box = RandomCrop(generator(0, 0, 0), scale=(0.9, 1.0)).box(1000, 10)
    assert (box.height, box.width) == (10, 13) and box.left == 493


def test_the_centre_crop_is_square_and_in_the_middle() -> None:
    assert CentreCrop(0.875).box(500, 400) == Box(75, 25, 350, 350)
