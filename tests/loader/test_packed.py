"""The packed layout holds the images of a folder, and nothing that is half written is read."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from flatout.errors import UsageError
from flatout.formats.packed import PackedWriter
from flatout.loader.sources.folders import ImageFolderSource
from flatout.loader.sources.packed import PackedSource
from tests.loader.photographs import make_class_folders


@pytest.fixture
def folders(tmp_path: Path) -> ImageFolderSource:
    return ImageFolderSource(make_class_folders(tmp_path / "photographs", 3, 4, 64) / "train")


def pack(source: ImageFolderSource, folder: Path, part_bytes: int = 4000) -> Path:
    with PackedWriter(folder, source.classes, part_bytes) as writer:
        for place in reversed(range(len(source.samples))):
            sample = source.samples[place]
            writer.add(sample.key, source.classes[sample.label], source.read(place))
    return folder


def test_a_packed_set_gives_what_was_put_in(folders: ImageFolderSource, tmp_path: Path) -> None:
    packed = PackedSource(pack(folders, tmp_path / "packed"))
    assert len(list((tmp_path / "packed").glob("part-*.bin"))) > 1
    assert packed.samples == folders.samples and packed.classes == folders.classes
    assert all(packed.read(place) == folders.read(place) for place in range(len(folders.samples)))
    copy = pickle.loads(pickle.dumps(packed))
    assert copy.read(5) == folders.read(5)
    assert folders.samples[5].key in packed.locate(5)


def test_a_subset_keeps_the_wanted_classes_with_their_places(folders: ImageFolderSource, tmp_path: Path) -> None:
    wanted = (folders.classes[2], folders.classes[0])
    packed = PackedSource(pack(folders, tmp_path / "packed"), wanted)
    assert {sample.label for sample in packed.samples} == {0, 1}
    assert all(sample.key.startswith(wanted[sample.label]) for sample in packed.samples)
    with pytest.raises(UsageError, match="no images of the wanted classes"):
        PackedSource(tmp_path / "packed", ("unknown",))


def test_a_set_without_labels_can_be_predicted_but_not_trained_on(tmp_path: Path) -> None:
    with PackedWriter(tmp_path / "packed", ()) as writer:
        writer.add("a.jpg", None, b"a")
    assert PackedSource(tmp_path / "packed", labelled=False).samples == [("a.jpg", -1)]
    with pytest.raises(UsageError, match=r"a\.jpg has no label"):
        PackedSource(tmp_path / "packed")


def test_what_was_not_finished_is_not_read(folders: ImageFolderSource, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), PackedWriter(tmp_path / "packed", folders.classes) as writer:
        writer.add("a.jpg", folders.classes[0], b"a")
        raise RuntimeError
    with pytest.raises(UsageError, match="no whole packed set"):
        PackedSource(tmp_path / "packed")
    pack(folders, tmp_path / "packed")
    with pytest.raises(UsageError, match="a packed set is there already"):
        PackedWriter(tmp_path / "packed", ())
    keys = tmp_path / "packed/keys.txt"
    keys.write_text(keys.read_text().partition("\n")[2])
    with pytest.raises(UsageError, match="11 keys, 12 places"):
        PackedSource(tmp_path / "packed")


def test_keys_that_the_index_cannot_hold_are_refused(tmp_path: Path) -> None:
    with PackedWriter(tmp_path / "packed", ("x",)) as writer:
        writer.add("a.jpg", "x", b"a")
        with pytest.raises(UsageError, match="appears twice"):
            writer.add("a.jpg", "x", b"b")
        with pytest.raises(UsageError, match="line break"):
            writer.add("a\nb.jpg", "x", b"b")
    assert PackedSource(tmp_path / "packed").read(0) == b"a"
