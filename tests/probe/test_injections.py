"""Settings that are put into an unchanged training take effect, or are refused with a reason."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from flatout.machine.snapshot import take_snapshot
from flatout.runner.command import injecting_environment

pytestmark = pytest.mark.slow

TRAINING = """
import json, sys, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(0, 4, (64,)))
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    train, val = DataLoader(data, batch_size=8), DataLoader(data, batch_size=8)
    seen = {"losses": [], "sizes": [], "dtype": None}
    for epoch in range(2):
        for x, y in train:
            optimizer.zero_grad()
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            seen["losses"].append(loss.item() * 1.0)
            seen["sizes"].append(len(x))
        with torch.no_grad():
            for x, y in val:
                seen["val_size"] = len(x)
    seen.update(
        workers=train.num_workers, val_workers=val.num_workers, prefetch=train.prefetch_factor,
        persistent=train.persistent_workers, dtype=str(out.dtype), lr=optimizer.param_groups[0]["lr"],
        fused=optimizer.param_groups[0]["fused"], steps=int(optimizer.state[next(model.parameters())]["step"]),
        last=model[0].weight.is_contiguous(memory_format=torch.channels_last),
        compiled=model._compiled_call_impl is not None, tf32=torch.get_float32_matmul_precision(),
    )
    print(json.dumps(seen))

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("injected") / "train.py"
    path.write_text(TRAINING)
    return path


def trained(script: Path, **settings: Any) -> tuple[dict[str, Any], str]:
    """What the script saw, and what was said on standard error."""
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture(scope="module")
def plain(script: Path) -> dict[str, Any]:
    seen, said = trained(script)
    assert "flatout" not in said
    return seen


def test_settings_of_the_loader_reach_the_training_and_not_the_validation(script: Path, plain: dict[str, Any]) -> None:
    seen, said = trained(script, num_workers=2, persistent_workers=True, prefetch_factor=3, worker_threads=1)
    assert (seen["workers"], seen["prefetch"], seen["persistent"], seen["val_workers"]) == (2, 3, True, 0)
    assert seen["losses"] == plain["losses"]
    assert "could not be set" not in said


def test_a_larger_batch_scales_the_learning_rate(script: Path, plain: dict[str, Any]) -> None:
    seen, _ = trained(script, batch_size=16, lr_factor=2.0)
    assert (set(seen["sizes"]), seen["val_size"], seen["steps"]) == ({16}, 8, plain["steps"] // 2)
    assert seen["lr"] == pytest.approx(2 * plain["lr"])


def test_gathered_gradients_are_those_of_the_large_batch(script: Path) -> None:
    gathered, _ = trained(script, accumulate=2)
    large, _ = trained(script, batch_size=16)
    assert gathered["steps"] == large["steps"]
    halves = gathered["losses"]
    means = [(halves[i] + halves[i + 1]) / 2 for i in range(0, len(halves), 2)]
    assert means == pytest.approx(large["losses"], rel=1e-3)


@pytest.mark.parametrize("kind", ["bf16", "fp16"])
def test_autocast_gives_float32_outputs_and_close_losses(script: Path, plain: dict[str, Any], kind: str) -> None:
    seen, said = trained(script, autocast=kind)
    assert seen["dtype"] == "torch.float32" and seen["steps"] == plain["steps"]
    assert seen["losses"] != plain["losses"]
    assert seen["losses"] == pytest.approx(plain["losses"], rel=0.05)
    assert "could not be set" not in said


def test_model_and_optimizer_take_their_forms(script: Path, plain: dict[str, Any]) -> None:
    seen, said = trained(script, channels_last=True, optimizer_form="fused", tf32=True, cudnn_benchmark=True)
    assert (seen["last"], seen["fused"], seen["tf32"]) == (True, True, "high")
    assert seen["losses"] == pytest.approx(plain["losses"], rel=1e-4)
    assert "could not be set" not in said


def test_at_the_end_it_is_said_what_was_set_and_what_nothing_took(script: Path) -> None:
    _, said = trained(script, cudnn_benchmark=True, lr_factor=2.0, chunk_cache_bytes=10**6)
    lines = [line for line in said.splitlines() if line.startswith("flatout: ")]
    assert lines[0].startswith("flatout: set ")
    assert sorted(lines[0].removeprefix("flatout: set ").split(", ")) == ["cudnn_benchmark=true", "lr_factor=2.0"]
    assert lines[1:] == ["flatout: chunk_cache_bytes had no effect: nothing in this training took it"]


def test_what_cannot_be_set_is_told_and_the_training_goes_on(
    script: Path, plain: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    seen, said = trained(script, prefetch_factor=4, pin_memory=True, autocast="int3")
    assert seen["losses"] == plain["losses"]
    assert "flatout: prefetch_factor could not be set: there are no workers" in said
    assert "flatout: pin_memory could not be set: there is no GPU to pin memory for" in said
    assert "'int3' is neither bf16 nor fp16" in said


def test_the_model_is_compiled(script: Path, plain: dict[str, Any]) -> None:
    seen, _ = trained(script, compile="default")
    assert seen["compiled"]
    assert seen["losses"] == pytest.approx(plain["losses"], rel=1e-3)


def test_a_scalar_on_the_gpu_is_read_when_it_is_looked_at(tmp_path: Path) -> None:
    script = tmp_path / "reading_losses.py"
    script.write_text(
        textwrap.dedent("""
        import torch

        class OnGpu(torch.Tensor):
            is_cuda = True  # which is all that tells it from one that is

        loss = torch.tensor(0.25).as_subclass(OnGpu)
        value = loss.item()
        kept = 2 * value + 1
        loss.fill_(9.0)
        print(type(value).__name__, type(kept).__name__, f"{kept:.2f}", value < 0.5, max(value, 0.0) == 0.25)
        print(type(torch.tensor(0.25).item()).__name__, type(torch.tensor(3).as_subclass(OnGpu).item()).__name__)
        """)
    )
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps({"lazy_scalars": True})}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["LazyScalar LazyScalar 1.50 True True", "float int"]
    assert done.stderr == "flatout: set lazy_scalars=true\n"


def test_checkpoints_beside_the_training_hold_what_was_saved(tmp_path: Path) -> None:
    script = tmp_path / "saving.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        model = torch.nn.Linear(4, 4)
        for number in range(3):
            torch.save({"model": model.state_dict(), "number": number}, f"{number}.pt")
            with torch.no_grad():
                model.weight.fill_(number)
        """)
    )
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps({"checkpoint_beside": True})}
    subprocess.run([sys.executable, str(script)], env=environment, cwd=tmp_path, check=True)
    import torch

    saved = [torch.load(tmp_path / f"{number}.pt") for number in range(3)]
    assert [one["number"] for one in saved] == [0, 1, 2]
    assert float(saved[1]["model"]["weight"][0, 0]) == 0.0 and float(saved[2]["model"]["weight"][0, 0]) == 1.0


def test_a_copy_is_read_in_place_of_the_folder(tmp_path: Path) -> None:
    real, copy = tmp_path / "real", tmp_path / "copy"
    for folder, text in ((real, "far away"), (copy, "near")):
        folder.mkdir()
        (folder / "a.txt").write_text(text)
    (real / "only.txt").write_text("only there")
    script = tmp_path / "reading.py"
    script.write_text(
        textwrap.dedent("""
        import os, pathlib, sys
        import torch
        root = pathlib.Path(sys.argv[1])
        print([open(root / "a.txt").read(), (root / "a.txt").read_bytes().decode(), (root / "only.txt").read_text()])
        print(sorted(os.listdir(root)), os.path.getsize(root / "a.txt"))
        (root / "new.txt").write_text("written")
        """)
    )
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps({"read_from": f"{real}={copy}"})}
    done = subprocess.run([sys.executable, str(script), str(real)], env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["['near', 'near', 'only there']", "['a.txt'] 4"], done.stderr
    assert (real / "new.txt").read_text() == "written" and not (copy / "new.txt").exists()


def test_a_copy_that_is_not_there_is_refused(tmp_path: Path) -> None:
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps({"read_from": f"{tmp_path}=/nowhere"})}
    done = subprocess.run([sys.executable, "-c", "import torch"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "read_from could not be set" in done.stderr


# Stands for libraries that open files in C: the C library's own open, which Python's functions have no part in.
C_LIBRARY = """
import ctypes, ctypes.util, os

_c = ctypes.CDLL(None)

def _read(path):
    fd = _c.open(os.fsencode(path), 0)
    if fd < 0:
        return None
    block = ctypes.create_string_buffer(100)
    size = _c.read(fd, block, 100)
    _c.close(fd)
    return block.raw[:size].decode()
"""


@pytest.mark.parametrize("setting", ["read_from", "read_through"])
def test_libraries_that_open_files_in_c_are_handed_the_copy(tmp_path: Path, setting: str) -> None:
    pytest.importorskip("torchvision")
    from PIL import Image

    real, copy = tmp_path / "real", tmp_path / "copy"
    for folder, text in ((real, "far away"), (copy, "near")):
        folder.mkdir()
        for name in ("a.txt", "b.txt"):
            (folder / name).write_text(text)
        Image.new("RGB", (8, 8), (len(text),) * 3).save(folder / "a.png")
    (tmp_path / "cv2.py").write_text(C_LIBRARY + "def imread(filename, flags=1):\n    return _read(filename)\n")
    (tmp_path / "h5py/_hl").mkdir(parents=True)
    (tmp_path / "h5py/__init__.py").write_text("from ._hl.files import File\n")
    (tmp_path / "h5py/_hl/__init__.py").write_text("")
    (tmp_path / "h5py/_hl/files.py").write_text(
        C_LIBRARY + "class File:\n    def __init__(self, name, mode='r'):\n        self.text = _read(name)\n"
    )
    script = tmp_path / "reading.py"
    script.write_text(
        textwrap.dedent("""
        import os, subprocess, sys
        import torch, torchvision, cv2, h5py
        root = sys.argv[1]
        for _ in range(2):
            print(cv2.imread(root + "/a.txt", 1), cv2.imread(filename=root + "/a.txt"), cv2.imread("/nowhere"))
            print(h5py.File(root + "/a.txt").text, h5py.File(root + "/b.txt", "r+").text)
            print(int(torchvision.io.read_image(root + "/a.png").max()))
            subprocess.run(["rm", "-f", root, *[os.path.join(root, name) for name in sys.argv[2:]]], stderr=-3)
        """)
    )
    cache = tmp_path / "cache"
    value = f"{real}={copy}" if setting == "read_from" else f"{real}={cache}:1000000"
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps({setting: value})}
    # Through the cache, the second time, the files are gone from where they were: others removed them.
    gone = [] if setting == "read_from" else ["a.txt", "b.txt", "a.png"]
    done = subprocess.run(
        [sys.executable, str(script), str(real), *gone], env=environment, capture_output=True, text=True
    )
    near, writing, pixel = ("near", "far away", 4) if setting == "read_from" else ("far away", "far away", 8)
    first = [f"{near} {near} None", f"{near} {writing}", str(pixel)]
    second = first if setting == "read_from" else [first[0], f"{near} None", first[2]]
    assert done.stdout.splitlines() == first + second, done.stderr


TWO_OPTIMIZERS = """
import torch
from torch import nn

torch.manual_seed(0)
body, head = nn.Linear(8, 8), nn.Linear(8, 1)
model = nn.Sequential(body, head)
first, second = (torch.optim.SGD(part.parameters(), lr=0.01) for part in (body, head))
for step in range(4):
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    first.step()
    second.step()
    first.zero_grad()
    second.zero_grad()
    print(loss.item())
"""


def test_a_loss_is_scaled_for_several_optimizers_at_once(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO_OPTIMIZERS)
    losses = []
    for settings in ({}, {"autocast": "fp16"}):
        environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings), "OMP_NUM_THREADS": "1"}
        done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        losses.append([float(line) for line in done.stdout.split()])
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert losses[1][-1] < losses[1][0]


def test_a_pipeline_cuts_before_it_changes_colours(tmp_path: Path) -> None:
    script = tmp_path / "pictures.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        from PIL import Image
        from torchvision import transforms
        from torchvision.transforms import v2

        class Colours(transforms.ColorJitter):
            def forward(self, picture):
                print("own", picture.size)
                return super().forward(picture)

        def colours(kind):
            real = kind.forward
            def forward(self, *pictures):
                print(kind.__module__.split(".")[1:3], type(self).__name__, pictures[0].size)
                return real(self, *pictures)
            kind.forward = forward

        colours(transforms.ColorJitter), colours(v2.ColorJitter)
        picture = Image.new("RGB", (80, 60), (200, 30, 40))
        tail = [transforms.ToTensor()]
        one = transforms.Compose([transforms.RandomApply([transforms.ColorJitter(0.4)], p=1.0),
                                  transforms.RandomHorizontalFlip(), transforms.RandomResizedCrop(32), *tail])
        print(one(picture).shape, [type(part).__name__ for part in one.transforms])
        print(v2.Compose([v2.Resize(40), v2.ColorJitter(0.4), v2.CenterCrop(24), v2.ToImage()])(picture).shape)
        for kept in (transforms.RandomCrop(90, padding=20), transforms.RandomRotation(10)):
            transforms.Compose([transforms.ColorJitter(0.4), kept, transforms.RandomCrop(20), *tail])(picture)
        transforms.Compose([Colours(0.4), transforms.RandomCrop(20), *tail])(picture)
        """)
    )
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps({"crop_first": True})}
    done = subprocess.run([sys.executable, str(script)], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "['transforms', 'transforms'] ColorJitter (32, 32)",
        "torch.Size([3, 32, 32]) ['RandomApply', 'RandomHorizontalFlip', 'RandomResizedCrop', 'ToTensor']",
        "['transforms', 'v2'] ColorJitter (24, 24)",
        "torch.Size([3, 24, 24])",
        # What pads, turns or is the user's own stays where it is.
        "['transforms', 'transforms'] ColorJitter (80, 60)",
        "['transforms', 'transforms'] ColorJitter (80, 60)",
        "own (80, 60)",
        "['transforms', 'transforms'] Colours (80, 60)",
    ], done.stderr


DEBUGGED = """
import gc, json, torch, tracemalloc
from torch import nn
from torch.distributions import Normal

torch.autograd.set_detect_anomaly(True)
torch.use_deterministic_algorithms(True)
torch.set_num_threads(3)
tracemalloc.start(5)
model = nn.Linear(4, 1)
with torch.autograd.set_multithreading_enabled(False):
    off = torch._C._is_multithreading_enabled()
nan = True
try:
    (model(torch.ones(2, 4)).sum() * 0.0).sqrt().backward()
except RuntimeError:  # of anomaly detection: the gradient of sqrt at 0 is inf, times 0 is NaN
    nan = False
try:
    Normal(torch.tensor(0.0), torch.tensor(-1.0))
    checked = False
except ValueError:
    checked = True
print(json.dumps({
    "asked": torch.is_anomaly_enabled(), "nan": nan, "deterministic": torch.are_deterministic_algorithms_enabled(),
    "threads": torch.get_num_threads(), "checked": checked, "off": off,
    "traced": bool(tracemalloc.get_traced_memory()[0]),
    "snapshot": len(tracemalloc.take_snapshot().traces) >= 0, "threshold": gc.get_threshold()[0],
    "collected": [gc.collect() is not None for _ in range(3)],
}))
"""


def test_switches_for_debugging_stay_off_and_the_script_does_not_notice(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(DEBUGGED)
    as_it_is, _ = trained(script)
    assert (as_it_is["nan"], as_it_is["checked"], as_it_is["threads"]) == (False, True, 3)
    names = "anomaly_mode,tracemalloc,backward_threads,validate_args,deterministic"
    seen, said = trained(script, debugging_off=names, collect_seldom=True, threads=1)
    assert (seen["nan"], seen["checked"], seen["threads"], seen["traced"]) == (True, False, 1, False)
    assert seen["asked"] and seen["deterministic"] and not seen["off"] and seen["snapshot"]
    assert (as_it_is["threshold"], seen["threshold"]) == (700, 50_000)
    assert "could not be set" not in said
    _, said = trained(script, debugging_off="nonsense")
    assert "debugging_off" in said and "'nonsense' is none of anomaly_mode" in said


FAULTING = """
import json, multiprocessing, resource
import torch

def faults(count=20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        torch.ones(10_000_000)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / count

def child(pipe):
    faults(30)
    pipe.send(faults())

if __name__ == "__main__":
    faults(30)
    here = faults()
    mine, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(theirs,))
    process.start()
    print(json.dumps({"here": here, "forked": mine.recv()}))
    process.join()
"""


def test_freed_memory_stays_in_the_process_and_in_those_that_it_forks(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(FAULTING)
    as_it_is, _ = trained(script)
    kept, said = trained(script, memory_kept=True)
    assert as_it_is["here"] > 10 * kept["here"] and as_it_is["forked"] > 10 * kept["forked"]
    assert "could not be set" not in said


VECTORIZED = """
import json, torch
points = torch.func.vmap(torch.func.grad(lambda x: (x.to(torch.float64) ** 2).to("cpu").sum()))(torch.ones(3, 2))
said = ""
try:
    torch.func.vmap(lambda x: x.to("cuda"))(torch.ones(3, 2))
except (RuntimeError, AssertionError) as error:  # where there is no GPU
    said = str(error)
print(json.dumps({"points": points.tolist(), "said": said}))
"""


def test_copies_inside_vmap_are_left_alone(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(VECTORIZED)
    seen, _ = trained(script, non_blocking=True)
    assert seen["points"] == [[2.0, 2.0]] * 3 and "pinned" not in seen["said"]


def test_large_tensors_lie_in_huge_pages_where_the_kernel_gives_them_to_who_asks(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(FAULTING)
    as_it_is, _ = trained(script)
    huge, said = trained(script, huge_pages=True)
    if take_snapshot().memory.huge_pages == "madvise":
        assert as_it_is["here"] > 10 * huge["here"] and as_it_is["forked"] > 10 * huge["forked"]
        assert "could not be set" not in said
    else:
        assert "huge_pages" in said and "/sys/kernel/mm/transparent_hugepage/enabled says" in said
