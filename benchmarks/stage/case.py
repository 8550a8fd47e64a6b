#!/usr/bin/env python3
"""A training that reads photographs through a mount of a slow bucket: what `flatout fix` makes of it.

A real S3 server, each request held by nginx for some milliseconds, mounted by rclone as root; an ordinary script with
torchvision's ImageFolder and two workers. `flatout fix` has to find the storage, stage what is read, and prove it.

Usage: python benchmarks/stage/case.py [--delay S] [--images N] [--budget TIME] [--output FILE]
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]

from conditions import head  # noqa: E402
from servers import ROOT, delayed, filled_server  # noqa: E402

from flatout.results import Gain  # noqa: E402
from flatout.stage.sources.base import StoreOptions  # noqa: E402
from flatout.storage.mounting import mount, unmount  # noqa: E402
from flatout.units import duration, interval, size  # noqa: E402
from tests.stage.server import BUCKET, bucket_store  # noqa: E402

DATA = ROOT / "build" / "stage"
TRAIN = """
import sys, torch, torchvision
from torchvision import transforms as T
if __name__ == "__main__":
    torch.set_num_threads(1)
    data = torchvision.datasets.ImageFolder(sys.argv[1], T.Compose([T.RandomResizedCrop(64), T.ToTensor()]))
    loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5, 4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
                                torch.nn.Flatten(), torch.nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(100):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
"""


def photograph(number: int) -> bytes:
    """A JPEG of 300 by 240 pixels, another one for each number."""
    import skimage.data
    from PIL import Image

    sources = (skimage.data.astronaut, skimage.data.chelsea, skimage.data.coffee, skimage.data.rocket)
    made = io.BytesIO()
    picture = Image.fromarray(sources[number % 4]()).resize((300, 240)).rotate(number % 7)
    picture.save(made, "JPEG", quality=88)
    return made.getvalue()


def main() -> None:
    """Fill, mount, fix, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--delay", type=float, default=0.02)
    parser.add_argument("--images", type=int, default=1_000)
    parser.add_argument("--budget", default="6m")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/measurements/slow-storage.md")
    given = parser.parse_args()
    DATA.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DATA) as name, filled_server(Path(name) / "server", 0, 0) as endpoint:
        import obstore

        folder = Path(name)
        store = bucket_store(endpoint)
        with ThreadPoolExecutor(4) as pool:
            keys = [f"set/c{n % 10}/{n}.jpg" for n in range(given.images)]
            list(pool.map(lambda n: obstore.put(store, keys[n], photograph(n)), range(given.images)))
        (folder / "train.py").write_text(TRAIN)
        with delayed(endpoint, given.delay, folder / "nginx") as slow:
            mount(f"s3://{BUCKET}/set", folder / "bucket", StoreOptions(slow), "rclone")
            try:
                done = subprocess.run(
                    [sys.executable, "-m", "flatout", "fix", "--budget", given.budget, "--json", "--stage-to",
                     str(folder / "copy"), "--", sys.executable, "train.py", str(folder / "bucket")],
                    cwd=folder, stdout=subprocess.PIPE, text=True, check=True,
                )  # fmt: skip
            finally:
                unmount(folder / "bucket")
    given.output.write_text("\n".join(page(json.loads(done.stdout), given)) + "\n")
    print(given.output)


def page(found: dict, given: argparse.Namespace) -> list[str]:
    """What fix said, as a page."""
    text = head("A training on slow storage", "benchmarks/stage/case.py", ("flatout", "torch"), {})
    text += [
        f"- {given.images:,} photographs in a bucket of a SeaweedFS server on the same machine; each request "
        f"{given.delay * 1000:.0f} ms later, by nginx; mounted by rclone, which keeps nothing; ImageFolder, two "
        f"workers. `flatout fix --budget {given.budget}`, one run.",
        "",
        f"Before: {found['diagnosis']}",
        "",
        "| tried | outcome | predicted | measured | why |",
        "|---|---|---|---|---|",
    ]
    for trial in found["tried"]:
        ratio = trial["ratio"]
        measured = f"{ratio['factor']:.2f}x ({ratio['low']:.2f}-{ratio['high']:.2f})" if ratio else "-"
        predicted = interval(Gain(**trial["predicted"]))
        text.append(f"| {trial['title']} | {trial['outcome']} | {predicted} | {measured} | {trial['why']} |")
    proof = found["proof"]
    if proof:
        text += [
            "",
            f"Proof: {proof['before']:,.1f} -> {proof['after']:,.1f} {proof['unit']}, {proof['speedup']:.1f}x "
            f"({proof['low']:.1f}-{proof['high']:.1f}), {proof['pairs']} pairs of runs; loss: {proof['loss']}.",
        ]
    costs = [trial["cost"] for trial in found["tried"] if trial["cost"]]
    for cost in costs:
        error = cost["predicted_s"] / cost["seconds"] - 1
        text.append(
            f"Staging: {cost['files']:,} files, {size(cost['bytes'])} in {duration(cost['seconds'])}; predicted "
            f"{duration(cost['predicted_s'])} ({error:+.0%}), from reading 64 of them through the mount."
        )
    return text


if __name__ == "__main__":
    main()
