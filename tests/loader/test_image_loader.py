"""Batches are the same whatever makes them, come in order, and nothing stays behind."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from PIL import Image

from flatout.errors import UnreadableImage, UsageError
from flatout.loader import choice
from flatout.loader.choice import second_thread_gain
from flatout.loader.device_transforms import Finish
from flatout.loader.image_loader import ImageLoader
from flatout.loader.interfaces import Batch
from flatout.loader.sources.folders import ImageFolderSource
from tests.loader.photographs import make_class_folders


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ImageFolderSource:
    return ImageFolderSource(make_class_folders(tmp_path_factory.mktemp("photographs"), 3, 9, 64) / "train")


def loader(source: ImageFolderSource, **options: object) -> ImageLoader:
    chosen = {"size": 32, "batch_size": 4, "training": True, "backend": "threads", "workers": 2, **options}
    return ImageLoader(source, range(len(source.samples)), **chosen)  # type: ignore[arg-type]


def epoch(source: ImageFolderSource, number: int = 0, **options: object) -> list[Batch]:
    with loader(source, **options) as made:
        made.set_epoch(number)
        return list(made)


def same(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(getattr(a, name), getattr(b, name))
        for a, b in zip(first, second, strict=True)
        for name in ("images", "labels", "indices", "flips")
    )


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 5}, {"backend": "processes"}, {"prefetch_batches": 1}])
def test_batches_do_not_depend_on_what_makes_them(source: ImageFolderSource, options: dict[str, object]) -> None:
    assert same(epoch(source), epoch(source, **options))


def test_epochs_and_seeds_differ_and_repeat(source: ImageFolderSource) -> None:
    assert same(epoch(source, 3), epoch(source, 3))
    assert not same(epoch(source, 0), epoch(source, 1))
    assert not same(epoch(source, 0), epoch(source, 0, seed=1))


def test_an_epoch_sees_every_image_once_and_training_leaves_out_a_partial_batch(source: ImageFolderSource) -> None:
    assert sorted(torch.cat([b.indices for b in epoch(source, training=False)]).tolist()) == list(range(27))
    seen = torch.cat([b.indices for b in epoch(source)]).tolist()
    assert len(seen) == len(set(seen)) == 24


def test_ranks_share_the_images_and_make_equally_many_steps(source: ImageFolderSource) -> None:
    parts = [epoch(source, rank=rank, world_size=2) for rank in range(2)]
    assert len(parts[0]) == len(parts[1]) == 3
    seen = [set(torch.cat([b.indices for b in part]).tolist()) for part in parts]
    assert not seen[0] & seen[1]
    scored = [epoch(source, rank=rank, world_size=2, training=False) for rank in range(2)]
    assert sorted(i for part in scored for b in part for i in b.indices.tolist()) == list(range(27))


def test_resuming_in_the_middle_gives_the_batches_that_were_to_come(source: ImageFolderSource) -> None:
    whole = [*epoch(source, 2), *epoch(source, 3)]
    with loader(source) as first:
        first.set_epoch(2)
        coming = iter(first)
        begun = [next(coming) for _ in range(4)]
        state = first.state_dict()
    with loader(source, workers=1) as second:
        second.load_state_dict(state)
        rest = [*second, *second]
    assert same(whole, [*begun, *rest])


def test_who_stops_at_the_last_batch_gets_the_next_epoch_whole(source: ImageFolderSource) -> None:
    with loader(source, training=False) as made:
        for _ in range(2):
            coming = iter(made)
            assert sum(len(next(coming)) for _ in range(len(made))) == 27


def test_no_more_batches_are_begun_than_are_allowed_in_flight(source: ImageFolderSource) -> None:
    with loader(source, prefetch_batches=2) as made:
        begun: list[int] = []
        whole = made._builder.empty
        made._builder.empty = lambda count: (begun.append(count), whole(count))[1]  # type: ignore[method-assign]
        coming = iter(made)
        next(coming)
        assert len(begun) == 3  # the one given, and two in flight


def test_threads_end_with_the_loader_however_it_is_left(source: ImageFolderSource) -> None:
    before = set(threading.enumerate())
    made = loader(source)
    assert set(threading.enumerate()) - before
    for _ in made:
        break
    made.close()
    gc.collect()
    assert set(threading.enumerate()) <= before


def test_an_unreadable_image_is_named_with_its_path(source: ImageFolderSource, tmp_path: Path) -> None:
    root = make_class_folders(tmp_path, 2, 6, 64)
    broken = next((root / "train").rglob("003.jpg"))
    broken.write_bytes(b"broken")
    with loader(ImageFolderSource(root / "train")) as made, pytest.raises(UnreadableImage, match=str(broken)):
        list(made)
    with loader(ImageFolderSource(root / "train"), bad_files="skip") as made:
        assert sum(map(len, made)) == 12
        assert [image.where for image in made.bad] == [str(broken)]


def test_a_choice_left_open_is_made_by_measuring_and_says_so(source: ImageFolderSource) -> None:
    with loader(source, backend="auto", workers=2) as made:
        assert made.choice.backend in ("threads", "processes")
        assert "a second thread" in made.choice.reason


def rates(*gains: float) -> Callable[[int], float]:
    """Rates of one and two threads in turn, with these gains."""
    coming = iter([rate for gain in gains for rate in (100.0, 100.0 * gain)])
    return lambda threads: next(coming)


@pytest.mark.parametrize(
    ("gains", "found"),
    [
        ((1.8, 1.7, 1.9), 1.8),
        ((0.29, 1.8, 7.31), 1.8),  # one turn that something else disturbed
        ((1.0, 1.0, 1.1), 1.0),
        ((7.31, 7.0, 6.5, 1.7, 1.6, 1.8), 1.7),
        ((0.29, 0.3, 0.2, 0.1, 0.3, 0.4), None),
        ((7.31, 7.0, 6.5, 3.0, 4.0, 5.0), None),
    ],
)
def test_a_second_threads_gain_is_a_median_and_physically_possible(
    gains: tuple[float, ...], found: float | None
) -> None:
    assert second_thread_gain(rates(*gains)) == (found and pytest.approx(found))


def test_where_nothing_can_be_measured_the_default_is_taken_and_the_reason_said(
    source: ImageFolderSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "_steady_rate", lambda builder, places, threads: 100.0 if threads == 1 else 900.0)
    with loader(source, backend="auto", workers=2) as made:
        assert made.choice.backend == "threads"
        assert "could not be measured: the machine is busy" in made.choice.reason


def test_images_that_wait_for_their_bytes_get_more_threads_than_cores(
    source: ImageFolderSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ImageFolderSource.read

    def far(self: ImageFolderSource, index: int) -> bytes:
        time.sleep(0.02)
        return whole(self, index)

    monkeypatch.setattr(ImageFolderSource, "read", far)
    monkeypatch.setattr(choice, "usable_cores", lambda: 2)
    # Without the wait for a core, which on a busy machine is longer than that for the bytes.
    monkeypatch.setattr(choice, "_runnable_ns", time.thread_time_ns)
    with loader(source, backend="auto", workers="auto") as made:
        assert made.choice.workers > 8
        assert "waiting for its bytes" in made.choice.reason


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_threads_of_a_loader_leave_the_number_of_threads_of_torch(source: ImageFolderSource) -> None:
    with loader(source, workers=3) as made:
        assert torch.get_num_threads() == 2
        pool = made._pool._pool  # type: ignore[union-attr]
        inside = {pool.submit(torch.get_num_threads).result() for _ in range(9)}
    assert inside == {1}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_nvjpeg_makes_the_pixels_of_the_cpu_within_a_tolerance(source: ImageFolderSource) -> None:
    for ours, theirs in zip(epoch(source, decoder="nvjpeg"), epoch(source), strict=True):
        assert ours.images.is_cuda
        assert (ours.images.cpu().float() - theirs.images.float()).abs().mean() < 2
        assert torch.equal(ours.labels, theirs.labels)


dali = pytest.mark.skipif(find_spec("nvidia.dali") is None, reason="DALI is not installed (590 MB)")


@dali
def test_dali_makes_the_batches_of_the_others_within_a_tolerance(source: ImageFolderSource) -> None:
    for training in (True, False):
        made = epoch(source, 1, decoder="dali", training=training)
        for ours, theirs in zip(made, epoch(source, 1, training=training), strict=True):
            difference = (ours.images.cpu().float() - theirs.images.float()).abs()
            assert difference.mean() < 1
            assert all(torch.equal(getattr(ours, n), getattr(theirs, n)) for n in ("labels", "indices", "flips"))


@dali
def test_what_dali_cannot_decode_is_decoded_named_or_left_out(tmp_path: Path) -> None:
    root = make_class_folders(tmp_path, 2, 6, 64) / "train"
    files = sorted(root.rglob("*.jpg"))
    with Image.open(files[0]) as image:
        image.save(files[0].with_suffix(".png"))
    files[0].unlink()
    assert torch.equal(
        epoch(ImageFolderSource(root), decoder="dali")[0].labels, epoch(ImageFolderSource(root))[0].labels
    )
    files[1].write_bytes(files[1].read_bytes()[:300])
    with pytest.raises(UnreadableImage, match=files[1].name):
        epoch(ImageFolderSource(root), decoder="dali")
    made = epoch(ImageFolderSource(root), decoder="dali", bad_files="skip")
    assert sum(map(len, made)) == 12


@pytest.mark.skipif(find_spec("nvidia.dali") is not None, reason="DALI is installed")
def test_dali_that_is_not_installed_is_said_with_how_to_get_it(source: ImageFolderSource) -> None:
    with pytest.raises(UsageError, match="dali is not installed: pip install"):
        loader(source, decoder="dali")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is there")
def test_nvjpeg_without_a_gpu_is_refused_by_name(source: ImageFolderSource) -> None:
    with pytest.raises(UsageError, match="nvjpeg needs a CUDA device"):
        loader(source, decoder="nvjpeg")


def test_stats_count_what_was_made(source: ImageFolderSource) -> None:
    with loader(source) as made:
        list(made)
        assert (made.stats.batches, made.stats.images) == (6, 24)
        assert made.stats.decode_s > 0 and made.stats.wait_s > 0


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.2, 0.0), (0.0, 1.0), (0.2, 1.0)])
def test_mixed_targets_add_up_and_repeat(source: ImageFolderSource, mixup: float, cutmix: float) -> None:
    batch = epoch(source)[0]
    finish = Finish((0.5,) * 3, (0.25,) * 3, 3, mixup=mixup, cutmix=cutmix)
    images, targets = finish(batch, 5, training=True)
    assert targets.shape == (4, 3) and torch.allclose(targets.sum(1), torch.ones(4))
    again, _ = finish(batch, 5, training=True)
    other, _ = finish(batch, 6, training=True)
    assert torch.equal(images, again) and not torch.equal(images, other)


def test_finishing_flips_scales_and_normalises(source: ImageFolderSource) -> None:
    batch = epoch(source)[0]
    images, labels = Finish((0.4, 0.5, 0.6), (0.2, 0.25, 0.3), 3)(batch, 0, training=True)
    expected = batch.images.float() / 255
    expected[batch.flips] = expected[batch.flips].flip(3)
    mean, std = (torch.tensor(v)[:, None, None] for v in ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3)))
    assert torch.allclose(images, (expected - mean) / std, atol=1e-5)
    assert torch.equal(labels, batch.labels) and images.is_contiguous(memory_format=torch.channels_last)
    plain, _ = Finish((0.4, 0.5, 0.6), (0.2, 0.25, 0.3), 3)(batch, 0, training=False)
    assert torch.allclose(plain, (batch.images.float() / 255 - mean) / std, atol=1e-5)
