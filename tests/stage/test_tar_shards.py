"""Tar shards: what lies in them is what was packed, in webdataset's layout."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from flatout import cli
from flatout.errors import UsageError
from flatout.formats.tar_shards import TarWriter
from flatout.stage.packing.pack import pack
from flatout.stage.selection import Selection
from flatout.stage.sources.folder import FolderSource
from tests.loader.photographs import make_class_folders


def test_shards_hold_every_picture_once_with_its_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_class_folders(tmp_path / "photographs", 4, 6, 64)
    words = ["stage", str(root), str(tmp_path / "shards"), "--splits", "train,val", "--tar", "--shard-size", "20KB"]
    assert cli.main([*words, "--quiet"]) == 0
    assert "webdataset" in capsys.readouterr().out
    for split in ("train", "val"):
        folder = tmp_path / "shards" / split
        index = json.loads((folder / "index.json").read_text())
        classes = json.loads((folder / "classes.json").read_text())
        keys = (folder / "keys.txt").read_text().splitlines()
        assert index["wids_version"] == 1 and len(index["shardlist"]) > 1
        number = 0
        for shard in index["shardlist"]:
            assert (folder / shard["url"]).stat().st_size == shard["filesize"]
            with tarfile.open(folder / shard["url"]) as tar:
                names = tar.getnames()
                assert len(names) == 2 * shard["nsamples"]
                for image, label in zip(names[::2], names[1::2], strict=True):
                    assert (image, label) == (f"{number:09}.jpg", f"{number:09}.cls")
                    assert tar.extractfile(image).read() == (root / split / keys[number]).read_bytes()  # type: ignore[union-attr]
                    name = classes[int(tar.extractfile(label).read())]  # type: ignore[union-attr]
                    assert keys[number].startswith(f"{name}/")
                    number += 1
        assert sorted(keys) == sorted(str(p.relative_to(root / split)) for p in (root / split).rglob("*.jpg"))
        assert keys != sorted(keys)  # in a drawn order
    assert cli.main(words) == 0 and "packed already" in capsys.readouterr().err
    with pytest.raises(UsageError, match="another packed set is there"):
        pack(FolderSource(root), tmp_path / "shards", Selection(splits=("train",)))


def test_an_exception_leaves_no_index(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), TarWriter(tmp_path / "shards", ("a",)) as writer:
        writer.add("a/1.jpeg", "a", b"data")
        raise RuntimeError
    assert not (tmp_path / "shards/index.json").exists()
    with TarWriter(tmp_path / "others", ()) as writer:
        writer.add("1.JPEG", None, b"data")
    with tarfile.open(fileobj=io.BytesIO((tmp_path / "others/shard-000000.tar").read_bytes())) as tar:
        assert tar.getnames() == ["000000000.jpg"]


def test_ways_of_writing_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stage", str(tmp_path), str(tmp_path / "d"), "--tar", "--pack"]) == 2
    assert "exclude each other" in capsys.readouterr().err
