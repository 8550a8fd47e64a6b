"""Pictures changed on the way: smaller where asked for, never cropped, and broken ones left out with their names."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import skimage.data
from PIL import Image

from flatout.stage.packing.pack import pack
from flatout.stage.pictures import Corrupt, PictureChange
from flatout.stage.selection import Selection
from flatout.stage.sources.folder import FolderSource
from flatout.stage.staging import stage
from flatout.stage.transfer import Options


def photograph(**options: object) -> bytes:
    made = io.BytesIO()
    Image.fromarray(skimage.data.rocket()).save(made, "JPEG", **{"quality": 92, **options})
    return made.getvalue()


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def test_a_photograph_gets_the_short_side_and_still_shows_the_same() -> None:
    before = photograph(exif=Image.Exif().tobytes() or b"", icc_profile=b"profile")
    after = PictureChange(short_side=100).apply("a.jpg", before)
    image = opened(after)
    assert min(image.size) == 100 and image.size[0] / image.size[1] == pytest.approx(640 / 427, rel=0.01)
    assert image.info["icc_profile"] == b"profile" and len(after) < len(before)
    shrunk = opened(before).resize(image.size, Image.Resampling.LANCZOS)
    assert np.abs(np.asarray(image, float) - np.asarray(shrunk, float)).mean() < 3


def test_the_orientation_is_kept() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    after = PictureChange(short_side=64).apply("a.jpg", photograph(exif=exif.tobytes()))
    assert opened(after).getexif()[0x0112] == 6


def test_what_is_small_enough_or_no_jpeg_is_the_same_to_the_byte() -> None:
    data = photograph()
    assert PictureChange(short_side=2_000).apply("a.jpg", data) is data
    png = io.BytesIO()
    Image.fromarray(skimage.data.rocket()).save(png, "PNG")
    assert PictureChange(short_side=64, drop_corrupt=True).apply("a.png", png.getvalue()) == png.getvalue()
    assert not PictureChange(short_side=64).applies("a.png") and not PictureChange(short_side=64).applies("a.txt")


def test_progressive_becomes_baseline_with_the_same_tables() -> None:
    before = photograph(progressive=True)
    after = PictureChange(baseline=True).apply("a.jpg", before)
    assert opened(before).info.get("progressive") and not opened(after).info.get("progressive")
    assert opened(after).quantization == opened(before).quantization
    assert np.abs(np.asarray(opened(after), float) - np.asarray(opened(before), float)).mean() < 1
    plain = photograph()
    assert PictureChange(baseline=True).apply("a.jpg", plain) is plain


@pytest.mark.parametrize("data", [b"", b"no picture", photograph()[:2_000]])
def test_what_cannot_be_decoded_is_said(data: bytes) -> None:
    with pytest.raises(Corrupt, match=r"a\.jpg: "):
        PictureChange(drop_corrupt=True).apply("a.jpg", data)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for number in range(12):
        path = tmp_path / "source" / f"c{number % 3}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photograph() if number else photograph()[:3_000])
    (tmp_path / "source/readme.txt").write_text("words")
    return tmp_path / "source"


def test_a_staging_shrinks_leaves_out_and_asks_for_nothing_twice(source: Path, tmp_path: Path) -> None:
    options = Options(change=PictureChange(short_side=64, drop_corrupt=True))
    done = stage(FolderSource(source), tmp_path / "dest", Selection(), options)
    assert (done.copied, done.changed, done.n_dropped, done.n_failed, done.total_files) == (13, 11, 1, 0, 12)
    assert "c0/0.jpg" in done.dropped_examples[0] and not (tmp_path / "dest/c0/0.jpg").exists()
    assert all(min(opened(path.read_bytes()).size) == 64 for path in (tmp_path / "dest").rglob("*.jpg"))
    assert (tmp_path / "dest/readme.txt").read_text() == "words"
    again = stage(FolderSource(source), tmp_path / "dest", Selection(), options)
    assert (again.copied, again.kept, again.n_dropped) == (0, 13, 1)
    other = stage(FolderSource(source), tmp_path / "dest", Selection(), Options(change=PictureChange(short_side=32)))
    assert (other.copied, other.kept, other.n_failed) == (11, 1, 1)  # another change is made anew
    assert "--drop-corrupt" in other.failed_examples[0]


def test_a_packed_set_holds_the_changed_pictures(source: Path, tmp_path: Path) -> None:
    options = Options(change=PictureChange(short_side=64, drop_corrupt=True))
    done = pack(FolderSource(source), tmp_path / "packed", Selection(), options)
    assert (done.packed, done.changed, done.n_dropped) == (11, 11, 1)
