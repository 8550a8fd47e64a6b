#!/usr/bin/env python3
"""Make the pictures of the documents: profile the example, write its page, and photograph that in a headless browser.

Usage: scripts/screenshots.py [RUN]    (RUN: the folder of a run that is there already)
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.report.html.browser import opened  # noqa: E402

IMAGES = ROOT / "docs/images"
LARGEST = 100_000  # bytes
STEPS = 60
WIDTH, HEIGHT = 960, 900  # of the picture at the top


def main(arguments: list[str]) -> int:
    """Write the pictures; the exit code."""
    with tempfile.TemporaryDirectory(prefix="screenshots-") as name:
        folder = Path(name)
        page = folder / "report.html"
        run = Path(arguments[0]).resolve() if arguments else profiled(folder)
        flatout(folder, "report", str(run), "--html", "-o", str(page))
        with opened(page, viewport={"width": WIDTH, "height": HEIGHT}) as shown:
            shown.screenshot(path=folder / "report.png")
            section = shown.locator("section", has_text="Over time")
            section.screenshot(path=folder / "over-time.png")
        sizes = {name: smaller(folder / name, IMAGES / name) for name in ("report.png", "over-time.png")}
    print("\n".join(f"docs/images/{name}: {size:,} bytes" for name, size in sizes.items()))
    return max(sizes.values()) > LARGEST


def profiled(folder: Path) -> Path:
    """The record of the example, made in a folder where its command is as short as in the documents."""
    (folder / "examples").symlink_to(ROOT / "examples")
    subprocess.run([sys.executable, "examples/photographs.py", "--data", "data"], cwd=folder, check=True)
    training = ["python", "examples/train.py", "--data", "data", "--out", "out"]
    flatout(folder, "profile", "--steps", str(STEPS), "--runs-dir", "runs", "--", *training)
    return next(path for path in (folder / "runs").iterdir() if (path / "run.json").is_file())


def flatout(folder: Path, *words: str) -> None:
    """Run a command of flatout in ``folder``, with this interpreter as `python`."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run([sys.executable, "-m", "flatout", *words], cwd=folder, check=True, env=environment)


def smaller(source: Path, target: Path) -> int:
    """Write a picture with 128 colours, which is enough for a page; returns its size in bytes."""
    target.parent.mkdir(exist_ok=True)
    with Image.open(source) as picture:
        picture.convert("RGB").quantize(128).save(target, optimize=True)
    return target.stat().st_size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
