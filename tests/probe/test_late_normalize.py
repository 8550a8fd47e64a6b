"""Pictures that stay uint8 until their batch is complete: the same values, later, and ordinary tensors in the end."""

from __future__ import annotations

import copy
import io
import json
import pickle
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import default_collate
from torchvision import transforms
from torchvision.transforms import v2

from flatout.probe import unconverted
from flatout.probe.injections import Injected, late_normalize
from flatout.probe.injections.late_normalize import _given, _Handing, _patch, split
from flatout.probe.unconverted import Unconverted
from flatout.runner.command import injecting_environment

NORMALIZE = transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.2))

TRAINING = """
import hashlib, json, os, sys
import numpy as np, torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, random_split
from torchvision import transforms as T
from torchvision.transforms import v2

channels = T.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.2))
PIPELINES = {
    "first": T.Compose([T.RandomCrop(28), T.ToTensor(), channels]),
    "second": v2.Compose([v2.RandomCrop(28), v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
                          v2.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.2))]),
    "converted": T.Compose([T.PILToTensor(), T.ConvertImageDtype(torch.float32), T.Normalize((0.5,), (0.2,))]),
    "gray": T.Compose([T.Grayscale(), T.ToTensor(), T.Normalize((0.5,), (0.2,))]),
    "arrays": T.Compose([T.ToTensor(), channels]),
    "erased": T.Compose([T.ToTensor(), T.RandomErasing(p=1.0), channels]),
}


class Pictures(Dataset):
    def __init__(self):
        self.pixels = np.random.default_rng(0).integers(0, 255, (160, 32, 32, 3), dtype=np.uint8)

    def __len__(self):
        return 160

    def __getitem__(self, index):
        picture = pipeline(self.pixels[index] if kind == "arrays" else Image.fromarray(self.pixels[index]))
        return {"picture": picture, "label": index} if kind == "named" else (picture, index)


class Inside(Dataset):
    # Makes samples of another data set's.

    pictures = Pictures()

    def __len__(self):
        return 160

    def __getitem__(self, index):
        picture, label = self.pictures[index]
        return picture if type(picture) is torch.Tensor else picture * 2, label


class Doubled(Pictures):
    def __getitem__(self, index):
        picture = pipeline(Image.fromarray(self.pixels[index]))
        picture = picture * 2
        return picture, index


class Kept(Pictures):
    kept = {}

    def __getitem__(self, index):
        picture = pipeline(Image.fromarray(self.pixels[index]))
        self.kept[index] = picture
        return picture, index


def together(samples):
    return torch.stack([picture for picture, _ in samples]), torch.tensor([label for _, label in samples])


def train():
    torch.manual_seed(0)
    data = {"doubled": Doubled, "inside": Inside, "kept": Kept}.get(kind, Pictures)()
    if kind == "part":
        data = random_split(ConcatDataset([data, data]), [160, 160])[0]
    loader = DataLoader(data, 32, num_workers=int(sys.argv[1]), collate_fn=together if kind == "own" else None)
    if kind == "after":  # another loader, whose pictures have to be floats
        next(iter(DataLoader(data, 32, collate_fn=together)))
    digest, kinds = hashlib.md5(), set()
    for _ in range(2):
        for batch in loader:
            pictures = batch["picture"] if kind == "named" else batch[0]
            kinds.add(type(pictures).__name__)
            digest.update(pictures.numpy().tobytes() + str(pictures.stride()).encode())
    assert kinds == {"Tensor"}
    injected = getattr(sys.modules.get("_flatout_probe.injections"), "INJECTED", None)
    became = [list(injected.applied), injected.refused.get("late_normalize")] if injected else None
    print(json.dumps([kind, digest.hexdigest(), became]), flush=True)


# Each in a process that has imported everything.
for kind in sys.argv[2:]:
    pipeline = PIPELINES.get(kind, PIPELINES["first"])
    if not os.fork():
        train()
        os._exit(0)
    assert os.wait()[1] == 0, kind
torch.optim.SGD([torch.zeros(1)], 0.1)  # a training: what was set is told at its end
"""
SET = ["late_normalize"], None
OF_KIND = {
    "first": SET,
    "second": SET,
    "converted": SET,
    "gray": SET,
    "named": SET,
    "arrays": SET,
    "part": SET,
    "after": SET,
    "erased": ([], None),
    "doubled": ([], "Doubled.__getitem__ does more with its pictures than to return them"),
    "kept": ([], "Kept.__getitem__ does more with its pictures than to return them"),
    "inside": ([], "Inside.__getitem__ calls no Compose of torchvision"),
    "own": ([], "samples are not put together by default_collate"),
}


def trained(folder: Path, workers: int, settings: dict[str, Any], *kinds: str) -> tuple[list[list[Any]], str]:
    script = folder / "train.py"
    script.write_text(TRAINING)
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings)}
    words = [sys.executable, str(script), str(workers), *kinds]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_batches_are_the_same_bit_for_bit(tmp_path: Path, workers: int) -> None:
    plain, _ = trained(tmp_path, workers, {}, *OF_KIND)
    late, _ = trained(tmp_path, workers, {"late_normalize": True}, *OF_KIND)
    assert [one[:2] for one in late] == [one[:2] for one in plain]
    assert {kind: tuple(became) for kind, _, became in late} == OF_KIND


def picture() -> tuple[Unconverted, torch.Tensor]:
    pixels = torch.randint(0, 256, (3, 8, 6), dtype=torch.uint8)
    return Unconverted(pixels, PARTS), NORMALIZE(pixels.float().div(255))


def scaled(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.float().div(255)


PARTS = (scaled, NORMALIZE)


def test_what_describes_a_picture_needs_no_floats() -> None:
    one = Unconverted(picture()[0].pixels, (lambda _: pytest.fail("converted"),))
    assert one.shape == (3, 8, 6) and one.dtype == torch.float32 and one.device.type == "cpu"
    assert (one.size(1), one.dim(), one.ndim, one.numel(), one.element_size(), len(one)) == (8, 3, 3, 144, 4, 3)
    assert isinstance(one, torch.Tensor) and not one.requires_grad and one.is_floating_point()


def test_operations_see_the_floats_and_give_ordinary_tensors() -> None:
    one, floats = picture()
    for made, wanted in [
        (one + 1, floats + 1),
        (1 - one, 1 - floats),
        (one[:, 2:4], floats[:, 2:4]),
        (torch.cat([one, floats]), torch.cat([floats, floats])),
        (torch.stack([one, floats]), torch.stack([floats, floats])),
        (one.to(torch.float64), floats.double()),
        (one.mean(), floats.mean()),
        (pickle.loads(pickle.dumps(one)), floats),
        (copy.deepcopy(one), floats),
        (torch.from_numpy(one.numpy()), floats),
        (torch.nn.functional.interpolate(one[None], 4), torch.nn.functional.interpolate(floats[None], 4)),
    ]:
        assert type(made) is torch.Tensor and torch.equal(made, wanted)
    file = io.BytesIO()
    torch.save(one, file)
    file.seek(0)
    assert torch.equal(torch.load(file), floats)


def test_floats_lie_as_their_pixels() -> None:
    """Pillow and NumPy lay colours out last, and all of torchvision but ``ToTensor`` leaves them there."""
    pixels = torch.randint(0, 256, (8, 6, 3), dtype=torch.uint8).permute(2, 0, 1)
    one = Unconverted(pixels, PARTS)
    assert one.stride() == (one + 0).stride() == (1, 18, 3)
    together = torch.stack([one, Unconverted(pixels, PARTS)])
    assert together.stride() == torch.stack([one + 0, one + 0]).stride()


def test_a_change_in_place_stays() -> None:
    one, floats = picture()
    one.mul_(2)
    one[0] = 0.0
    assert torch.equal(one + 0, torch.cat([torch.zeros(1, 8, 6), floats[1:] * 2]))


def test_batches_and_queues_carry_the_uint8() -> None:
    unconverted.register()
    one, floats = picture()
    other, others = picture()
    for batch in (torch.stack([one, other]), torch.stack((one, other), dim=0), default_collate([one, other])):
        assert type(batch) is Unconverted and batch.pixels.dtype == torch.uint8 and batch.shape == (2, 3, 8, 6)
        assert torch.equal(batch + 0, torch.stack([floats, others]))
    handed = pickle.loads(bytes(ForkingPickler.dumps(Unconverted(torch.stack([one.pixels]), PARTS))))
    assert type(handed) is Unconverted and torch.equal(handed + 0, floats[None])
    ordinary = default_collate([one, floats])
    assert type(ordinary) is torch.Tensor and torch.equal(ordinary, torch.stack([floats, floats]))


def test_a_copy_to_a_device_is_of_the_uint8() -> None:
    """The device ``meta`` stands for a GPU: it has no values, but shows what reaches it."""
    reached = []

    def seen(pixels: torch.Tensor) -> torch.Tensor:
        reached.append((pixels.device.type, pixels.dtype))
        return pixels.to(torch.float32)

    def made() -> Any:
        return Unconverted(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), (seen,))

    for copied in (
        made().to("meta"),
        made().to(device="meta", non_blocking=True),
        made().to("meta", torch.float16, True),
        made().to(torch.empty(0, device="meta")),
    ):
        assert type(copied) is torch.Tensor and copied.device.type == "meta" and copied.shape == (2, 3, 4, 4)
    assert copied.dtype == torch.float32 and reached == [("meta", torch.uint8)] * 4
    assert made().to("cpu").device.type == "cpu"


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_batch_waits_for_its_copy_where_a_gpu_is_in_use(monkeypatch: pytest.MonkeyPatch, on_gpu: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: on_gpu)
    injected = Injected(json.dumps({"late_normalize": True}))
    labels = {"label": torch.zeros(1)}
    assert _given(injected, labels) is labels and not injected.applied
    one, floats = picture()
    made = _given(injected, {"picture": one, **labels})["picture"]
    assert type(made) is (Unconverted if on_gpu else torch.Tensor) and torch.equal(made + 0, floats)
    assert injected.applied == {"late_normalize": True}


def test_large_batches_are_converted_in_pieces() -> None:
    pixels = torch.randint(0, 256, (5, 3, 200, 150), dtype=torch.uint8)
    assert torch.equal(Unconverted(pixels, PARTS) + 0, NORMALIZE(pixels.float().div(255)))


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        ([transforms.ToTensor()], 0),
        ([transforms.Resize(8), transforms.ToTensor(), NORMALIZE], 1),
        ([v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.ToPureTensor()], 0),
        ([v2.ToImage()], None),  # stays uint8 as it is
        ([v2.ToImage(), v2.ToDtype(torch.float16, scale=True)], None),
        ([transforms.ToTensor(), transforms.RandomErasing(), NORMALIZE], None),
        ([transforms.ToTensor(), transforms.Lambda(lambda one: one)], None),
        ([transforms.Resize(8)], None),
        ([], None),
    ],
)
def test_where_a_pipeline_is_split(parts: list[Any], place: int | None) -> None:
    found = split(tuple(parts))
    assert (found and found[0]) == place


def test_floats_that_differ_switch_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(transforms.Normalize):  # type: ignore[misc]
        def forward(self, tensor: torch.Tensor) -> torch.Tensor:
            return tensor + tensor.dim()

    Wrong.__module__, Wrong.__name__ = "torchvision.transforms.transforms", "Normalize"
    kind = type("Compose", (transforms.Compose,), {})
    injected = Injected(json.dumps({"late_normalize": True}))
    _patch(_Handing(injected), "__call__", type("module", (), {"Compose": kind}))
    given = Image.fromarray(np.zeros((4, 4, 3), np.uint8))
    pipeline = kind([transforms.ToTensor(), Wrong(0.5, 0.5)])
    monkeypatch.setattr(late_normalize, "_is_handed_over", lambda: True)
    made = [pipeline(given) for _ in range(2)]
    assert all(type(one) is torch.Tensor and one.max() == 3 for one in made)
    assert injected.refused == {"late_normalize": "floats of a batch differ from those of its pictures"}
