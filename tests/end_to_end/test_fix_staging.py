"""A training that reads a bucket through a slow mount: fix stages what it reads, and says what that costs."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flatout.stage.sources.base import StoreOptions
from flatout.storage.mounting import mount, unmount
from tests.stage.proxy import Faults, proxy
from tests.stage.server import ACCESS, BUCKET, SECRET, bucket_store, s3_server
from tests.stage.test_mounting import why_not

IMAGES = 400
TRAIN = """
import sys, torch, torchvision
from torchvision import transforms as T
if __name__ == "__main__":
    torch.set_num_threads(1)
    data = torchvision.datasets.ImageFolder(sys.argv[1], T.Compose([T.CenterCrop(64), T.ToTensor()]))
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5, 4), torch.nn.Flatten(), torch.nn.Linear(1800, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(1000):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
"""


def photograph(number: int) -> bytes:
    import numpy as np
    import skimage.data
    from PIL import Image

    made = io.BytesIO()
    Image.fromarray(np.roll(skimage.data.astronaut()[::4, ::4], number, axis=1)).save(made, "JPEG")
    return made.getvalue()


@pytest.fixture
def slow_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    if why_not("rclone"):
        pytest.skip(why_not("rclone"))
    import obstore

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with s3_server(tmp_path / "server") as endpoint, proxy(endpoint, Faults(delay_s=0.01)) as slow:
        with ThreadPoolExecutor(8) as pool:
            store = bucket_store(endpoint)
            list(pool.map(lambda n: obstore.put(store, f"set/c{n % 4}/{n}.jpg", photograph(n)), range(IMAGES)))
        mount(f"s3://{BUCKET}/set", tmp_path / "bucket", StoreOptions(slow), "rclone")
        try:
            yield tmp_path / "bucket"
        finally:
            unmount(tmp_path / "bucket")


@pytest.mark.serial
@pytest.mark.timeout(900)
def test_fix_stages_what_is_read_through_a_slow_mount(slow_mount: Path, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    done = subprocess.run(
        [sys.executable, "-m", "flatout", "fix", "--budget", "5m", "--seconds", "4s", "--json",
         "--stage-to", str(tmp_path / "copy"),
         "--", sys.executable, "train.py", str(slow_mount)],
        cwd=folder, capture_output=True, text=True, check=False, timeout=800, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    trial = found["tried"][0]
    assert (trial["remedy"], trial["outcome"]) == ("local_copy", "kept"), trial
    assert trial["cost"]["files"] == IMAGES and "pays for itself after" in trial["why"]
    (copy,) = (path for path in (tmp_path / "copy").iterdir() if not path.name.startswith("."))
    assert trial["settings"] == {"read_from": f"{slow_mount}={copy}"}
    assert len(list((tmp_path / "copy").rglob("*.jpg"))) == IMAGES
    assert found["proof"]["low"] > 1.5
