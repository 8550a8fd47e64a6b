"""Items that MONAI's deterministic transforms make once, in an unchanged training."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flatout.runner.command import injecting_environment

pytest.importorskip("monai")
pytestmark = pytest.mark.slow

SCRIPT = """
import hashlib, json, os, re, sys
import nibabel
import numpy as np
import torch
from monai.data import CacheDataset, Dataset
from monai.transforms import (Compose, CropForegroundd, EnsureChannelFirstd, Lambdad, LoadImaged, MapTransform,
    NormalizeIntensityd, Orientationd, RandCropByPosNegLabeld, RandFlipd, RandGaussianNoised, ScaleIntensityRanged,
    Spacingd)
from monai.utils import set_determinism
from torch.utils.data import DataLoader

KEYS = ["image", "label"]
MODE = sys.argv[1]
PARTS = []

def note(values):
    with open("calls.txt", "a") as file:
        file.write("call\\n")
    return values

def drawn(values):
    note(values)
    return values + np.random.rand()

def pipeline():
    first = [LoadImaged(KEYS), EnsureChannelFirstd(KEYS), Orientationd(KEYS, axcodes="RAS"),
             Spacingd(KEYS, pixdim=(1.5, 1.5, 2.0), mode=("bilinear", "nearest")),
             Lambdad("image", drawn if MODE == "drawn" else note), CropForegroundd(KEYS, source_key="label"),
             NormalizeIntensityd("image"), Lambdad("image", lambda values: values * 0.5)]
    random = [RandCropByPosNegLabeld(KEYS, "label", (8, 8, 6), num_samples=2), RandFlipd(KEYS, 0.5, 0),
              RandGaussianNoised("image", prob=0.5)]
    return Compose(first + ([] if MODE == "whole" else random), lazy=MODE == "lazy")

def described(found):
    if isinstance(found, list):
        return [described(one) for one in found]
    parts = []
    for name in sorted(found):
        value = found[name]
        if isinstance(value, torch.Tensor):
            text = repr((type(value).__name__, str(value.dtype), tuple(value.shape), value.stride(),
                         value.contiguous().numpy().tobytes(), sorted(map(str, getattr(value, "meta", {}).items())),
                         undone(value)))
            value.mul_(0)  # a later pass does not see it
            parts.append([name, hashlib.sha1(text.encode()).hexdigest()])
        else:
            parts.append([name, str(value)])
    return parts

def flat(found):
    for one in found if isinstance(found, (list, tuple)) else ():
        yield from [one] if isinstance(one, dict) else flat(one)

def undone(value):
    known = {id(part) for one in PARTS for part in (one, *vars(one).values())}
    found = flat(getattr(value, "applied_operations", ()))
    return [(one["class"], one["id"] in known, re.sub("'id': [0-9]+|id: [0-9]+", "", str(one))) for one in found]

def write(folder, seed):
    rng = np.random.default_rng(seed)
    affine = np.diag([-1.5, -1.4, 2.1, 1.0])
    volume = rng.normal(0, 200, (20, 22, 14)).astype(np.int16)
    label = np.zeros(volume.shape, np.uint8)
    label[4:16, 5:17, 2:11] = 1
    nibabel.save(nibabel.Nifti1Image(volume, affine), folder + "_image.nii.gz")
    nibabel.save(nibabel.Nifti1Image(label, affine), folder + "_label.nii.gz")

def main():
    set_determinism(0)
    names = ["case%d" % case for case in range(6)]
    for case, name in enumerate(names):
        write(name, case)
    items = [{"image": name + "_image.nii.gz", "label": name + "_label.nii.gz", "case": name} for name in names]
    kind = CacheDataset if MODE == "cached" else Dataset
    made = pipeline()
    PARTS.extend(made.transforms)
    data = kind(items, made, **({"progress": False} if MODE == "cached" else {}))
    seen = [[described(data[index]) for index in range(len(data))] for _ in range(4)]
    for workers in (2, 2):
        seen.append(list(DataLoader(data, batch_size=None, num_workers=workers, collate_fn=described)))
    write("case2", 77)
    seen.append(described(data[2]))
    print(json.dumps([seen, torch.rand(1).item(), np.random.rand()]))

if __name__ == "__main__":
    main()
"""


def told(folder: Path, mode: str, settings: dict[str, Any]) -> tuple[Any, int, str]:
    """What a training of MONAI tells of its samples, how often an item was prepared, and what flatout said."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "train.py", mode], env=environment, cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    calls = (folder / "calls.txt").read_text().count("call")
    return json.loads(done.stdout), calls, done.stderr


@pytest.mark.parametrize(
    ("mode", "prepared", "said"),
    [
        # Six items are prepared first, eight again to compare them, and the one whose file has changed.
        ("random", 6 + 8 + 1, ""),
        ("whole", 6 + 8 + 1, ""),
        ("drawn", None, "keeps no items of MONAI: it draws random numbers"),
        ("lazy", None, ""),
        ("cached", None, ""),
    ],
)
def test_samples_are_the_same_and_items_are_prepared_once(
    tmp_path: Path, mode: str, prepared: int | None, said: str
) -> None:
    before, all_calls, _ = told(tmp_path / "run", mode, {})
    after, calls, err = told(tmp_path / "run", mode, {"sample_cache_bytes": 100_000_000})
    assert after == before
    assert said in err
    # This process and the four workers compare now and then, each with a count of its own.
    assert calls == all_calls if prepared is None else prepared <= calls <= prepared + 5
