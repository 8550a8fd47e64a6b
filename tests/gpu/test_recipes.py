"""The reference pipelines on a GPU, which is a fake one: real losses, and every name and device checked."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision.io
from PIL import Image
from torch import Tensor

from flatout.loader.crops import CentreCrop
from flatout.loader.dali import DaliPool
from flatout.loader.decoders import nvjpeg
from flatout.recipes.data_config import resolve_images
from flatout.recipes.datasets import open_data, open_test
from flatout.recipes.fitting import fit
from flatout.recipes.image_pipeline import make_loader
from flatout.recipes.image_task import ImageTask
from flatout.recipes.lr_range import range_test
from flatout.recipes.models import build_model
from flatout.recipes.optimization import build_optimizer
from flatout.recipes.precision import lightning_precision
from flatout.recipes.predicting import find_trained, predict
from flatout.recipes.reading import read_recipe
from flatout.recipes.resolved import _device
from flatout.recipes.schema import Recipe
from tests.gpu.fake_gpu import FakeGpu
from tests.gpu.fake_tensors import on_gpu
from tests.loader.photographs import make_class_folders, picture

pytestmark = [
    # Lightning's and its dependencies' own.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
TINY = ["model.name=test_resnet", "images.size=32", "images.workers=1", "training.batch_size=8", "training.epochs=2"]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_class_folders(tmp_path_factory.mktemp("photographs"), 2, 16, 64)


@pytest.fixture(autouse=True)
def libraries_as_before() -> Any:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def recipe(photographs: Path, *more: str) -> Recipe:
    return read_recipe("demo", [*TINY, f"data.root={photographs}", "schedule.warmup_epochs=0.5", *more])


def quiet(line: str) -> None:
    pass


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["auto", "fp16", "fp32"])
def test_a_fit_trains_on_the_gpu(fake: FakeGpu, photographs: Path, tmp_path: Path, precision: str) -> None:
    wanted = recipe(photographs, f"training.precision={precision}", "training.ema_decay=0.9", "training.mixup=0.2")
    said: list[str] = []
    done = fit(wanted, open_data(wanted), tmp_path / "run", report=said.append, show_progress=False)
    assert len(done.records) == 2
    assert all(record.metrics["train/loss"] > 0 for record in done.records)
    assert f"1 × {fake.name}" in said[0]
    assert torch.get_float32_matmul_precision() == "high"  # TF32, as the recipe says
    assert fake.peak > 0


def test_steps_do_not_wait_for_the_gpu(
    fake: FakeGpu, photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses are read where they are logged and at the end of an epoch, not at each step."""
    wanted = recipe(photographs, "training.epochs=1", "data.validation=null", "logging.every_steps=1000")
    step, waits = ImageTask.training_step, []

    def counted(self: ImageTask, batch: Any, batch_idx: int) -> Any:
        waits.append(fake.waits)
        return step(self, batch, batch_idx)

    monkeypatch.setattr(ImageTask, "training_step", counted)
    fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    assert len(waits) == 4
    assert waits[-1] == waits[0]


def test_a_resumed_fit_goes_on_with_the_random_states_of_the_gpu(
    fake: FakeGpu, photographs: Path, tmp_path: Path
) -> None:
    wanted = recipe(photographs, "training.epochs=1")
    data = open_data(wanted)
    fit(wanted, data, tmp_path / "run", report=quiet, show_progress=False)
    saved = torch.load(tmp_path / "run/last.ckpt", map_location="cpu", weights_only=False)
    (state,) = next(part["cuda"] for name, part in saved["callbacks"].items() if "FitHistory" in name)
    torch.cuda.manual_seed(99)
    longer = recipe(photographs, "training.epochs=2")
    done = fit(
        longer, data, tmp_path / "run", resume=True, allowed=["training.epochs"], report=quiet, show_progress=False
    )
    assert len(done.records) == 2
    # Nothing is drawn on this GPU: what was set at the start is there at the end.
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_a_batch_that_the_gpu_has_no_room_for_is_made_smaller(fake: FakeGpu, photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "training.epochs=1", "training.batch_size=16", "training.oom_fallback=true")
    data = open_data(wanted)
    fit(wanted, data, tmp_path / "probe", report=quiet, show_progress=False)
    fake.out_of_memory_at = fake.peak - 1
    said: list[str] = []
    done = fit(wanted, data, tmp_path / "run", report=said.append, show_progress=False)
    assert len(done.records) == 1
    assert any("out of device memory at batch size 16: going on with 12" in line for line in said)


def test_a_range_test_leaves_the_gpus_random_state_and_the_model_as_they_were(fake: FakeGpu, photographs: Path) -> None:
    wanted, _ = resolve_images(recipe(photographs, "training.precision=auto", "training.mixup=0.2"))
    data = open_data(wanted)
    model = build_model(wanted, len(data.classes)).to("cuda")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.cuda.get_rng_state()
    with make_loader(wanted, data, True) as loader:
        found = range_test(wanted, model, loader, len(data.classes), num_training=20)
    assert len(found.losses) > 1
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(state, torch.cuda.get_rng_state())


def test_predictions_of_a_checkpoint_are_made_on_the_gpu(fake: FakeGpu, photographs: Path, tmp_path: Path) -> None:
    wanted = recipe(photographs, "training.epochs=1")
    done = fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    assert done.last is not None
    saved = torch.load(done.last, map_location="cpu", weights_only=False)
    assert not any(on_gpu(value) for value in saved["state_dict"].values())
    fake.peak = 0
    test = open_test(str(photographs / "val" / "astronaut0"))
    made = predict(find_trained(tmp_path / "run"), test).probabilities
    assert made.shape == (len(test.samples), 2)
    assert fake.peak > 0


def test_precision_follows_what_the_gpu_can(fake: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lightning_precision("auto") == "bf16-mixed"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: False)
    assert lightning_precision("auto") == "16-mixed"
    assert _device(4) == f"4 × {fake.name}"


def jpeg(**options: Any) -> bytes:
    held = io.BytesIO()
    picture("coffee").resize((120, 90)).save(held, "JPEG", quality=95, **options)
    return held.getvalue()


def by_nvjpeg(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """torchvision's decoder, which has no nvJPEG to call here: decodes on the CPU what is to lie on the GPU."""
    real, asked = torchvision.io.decode_jpeg, []

    def decode_jpeg(
        input: Tensor, mode: Any = None, device: Any = "cpu", apply_exif_orientation: bool = False
    ) -> Tensor:
        assert input.device.type == "cpu" and input.dtype == torch.uint8 and input.dim() == 1
        asked.append(torch.device(device))
        made = real(input, mode, apply_exif_orientation=apply_exif_orientation)
        assert isinstance(made, Tensor)
        return made.to(device)

    monkeypatch.setattr(nvjpeg, "decode_jpeg", decode_jpeg)
    return asked


def test_nvjpeg_decodes_crops_and_resizes_on_the_gpu(fake: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = by_nvjpeg(monkeypatch)
    slot = torch.empty((32, 32, 3), dtype=torch.uint8, device="cuda")
    decoder = nvjpeg.NvjpegDecoder()
    decoder.decode_into(jpeg(), CentreCrop(1.0), slot)
    assert [device.type for device in asked] == ["cuda"]
    expected = torch.empty((32, 32, 3), dtype=torch.uint8)
    decoder._rest.decode_into(jpeg(), CentreCrop(1.0), expected)
    assert (slot.cpu().float() - expected.float()).abs().mean() < 2


@pytest.mark.parametrize("kind", ["PNG", "turned", "damaged"])
def test_what_nvjpeg_does_not_decode_reaches_the_gpu_by_pillow(
    fake: FakeGpu, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    asked = by_nvjpeg(monkeypatch)
    data = jpeg()
    if kind == "PNG":
        held = io.BytesIO()
        picture("coffee").resize((120, 90)).save(held, "PNG")
        data = held.getvalue()
    elif kind == "turned":
        exif = Image.Exif()
        exif[0x0112] = 6
        data = jpeg(exif=exif)
    else:

        def refuses(*args: Any, **kwargs: Any) -> Tensor:
            raise RuntimeError("nvjpegDecodeJpegHost failed: 2")

        monkeypatch.setattr(nvjpeg, "decode_jpeg", refuses)
    slot = torch.zeros((32, 32, 3), dtype=torch.uint8, device="cuda")
    nvjpeg.NvjpegDecoder().decode_into(data, CentreCrop(1.0), slot)
    assert asked == []
    assert slot.float().mean().item() > 10


def test_a_fit_with_nvjpeg_takes_its_batches_from_the_gpu(
    fake: FakeGpu, photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = by_nvjpeg(monkeypatch)
    wanted = recipe(photographs, "training.epochs=1", "images.decoder=nvjpeg")
    done = fit(wanted, open_data(wanted), tmp_path / "run", report=quiet, show_progress=False)
    assert len(done.records) == 1
    assert len(asked) >= 32


class DaliTensors:
    """What a pipeline of DALI gives: its list of tensors on the GPU, and the one tensor that it becomes."""

    def __init__(self, pixels: Tensor) -> None:
        self._pixels = pixels

    def as_tensor(self) -> DaliTensors:
        return self

    def __dlpack__(self, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
        assert stream == 1, "the copy has to follow DALI's work on the stream that reads it"
        return self._pixels.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def test_batches_of_dali_on_the_gpu_are_completed_by_our_decoder(fake: FakeGpu, photographs: Path) -> None:
    wanted = recipe(photographs)
    data = open_data(wanted)
    with make_loader(wanted, data, True) as loader:
        pool = object.__new__(DaliPool)
        pool._builder, pool._device = loader._builder, "gpu"
        made = DaliTensors(torch.zeros((4, 32, 32, 3), dtype=torch.uint8))
        batch, ready, spent, bad = pool._finished(made, [0, 1, 2, 3], [2], 0)
    assert batch.images.is_cuda
    assert [bool(image.float().sum() > 0) for image in batch.images] == [False, False, True, False]
    assert (ready, spent.images, bad) == (False, 4, [])
    moved = batch.to("cuda", non_blocking=True)
    assert all(getattr(moved, name).is_cuda for name in ("images", "labels", "indices", "flips"))


@pytest.mark.skipif(find_spec("nvidia.dali") is None, reason="DALI is not installed (590 MB)")
def test_dali_on_a_gpu_has_the_names_that_are_used() -> None:
    from nvidia.dali import backend_impl

    assert hasattr(backend_impl.TensorListGPU, "as_tensor")
    ours, theirs = vars(DaliTensors), vars(backend_impl.TensorGPU)
    assert {"__dlpack__", "__dlpack_device__"} <= ours.keys() & theirs.keys()


def test_a_first_step_that_overflows_in_float16_leaves_no_momentum_behind(fake: FakeGpu, photographs: Path) -> None:
    wanted = recipe(photographs, "optimizer.name=sgd", "optimizer.momentum=0.9")
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64).to("cuda")
    optimizer, scaler = build_optimizer(wanted, model, 0.01), torch.amp.GradScaler("cuda")
    assert optimizer.defaults["fused"]
    before = model.weight.detach().clone()
    for factor in (float("inf"), 1.0):
        loss = model(torch.ones(2, 64, device="cuda")).sum() * factor
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    expected = before - 0.01 * (1.9 if optimizer.defaults["nesterov"] else 1.0) * 2
    decay = max(group["weight_decay"] for group in optimizer.param_groups)
    assert torch.allclose(model.weight, expected, atol=0.02 * decay + 1e-5)
