"""Files that Pillow opens: decoded at a smaller scale, and kept in memory as long as they stay as they are."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from flatout.runner.command import injecting_environment

pytestmark = pytest.mark.slow


def test_pictures_are_decoded_at_the_scale_that_is_needed(tmp_path: Path) -> None:
    script = tmp_path / "pictures.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        from PIL import Image
        Image.new("RGB", (800, 600), (200, 30, 40)).save("big.jpg")
        Image.new("RGB", (300, 260)).save("small.jpg")
        Image.new("RGB", (800, 600)).save("other.png")
        sizes = [Image.open(name).convert("RGB").size for name in ("big.jpg", "big.jpg", "small.jpg", "other.png")]
        with open("big.jpg", "rb") as file:
            sizes.append(Image.open(file).convert("RGB").size)
        print(sizes)
        """)
    )
    settings = {"jpeg_short_side": 256, "file_cache_bytes": 100_000}
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings)}
    done = subprocess.run([sys.executable, str(script)], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "[(400, 300), (400, 300), (300, 260), (800, 600), (400, 300)]", done.stderr


REWRITTEN = """
import os, sys, time
import torch
from PIL import Image

def write(colour, old):
    Image.new("RGB", (8, 8), colour).save("one.bmp")
    if old:
        os.utime("one.bmp", (1e9, 1e9))

def read():
    with Image.open("one.bmp") as picture:
        return picture.filename, picture.getpixel((0, 0))[0]

write(1, False)
seen = [read(), read()]
write(2, False)  # the same size, perhaps within the same tick of the clock
seen += [read()]
time.sleep(2.1)
write(3, True)
time.sleep(2.1)
seen += [read(), read()]
write(4, True)  # the same size and time of change
seen += [read()]
assert seen == [("one.bmp", colour) for colour in (1, 1, 2, 3, 3, 4)], seen
"""


def test_a_file_that_is_written_again_is_read_again_and_pictures_keep_their_name(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(REWRITTEN)
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps({"file_cache_bytes": 100_000})}
    done = subprocess.run([sys.executable, str(script)], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
