"""What the scripts read: photographs, archives, tables and records, made once, and a server that is as slow as told."""

from __future__ import annotations

import contextlib
import http.server
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import tifffile
from PIL import Image
from skimage import data

_CHUNK = 1 << 16


@contextlib.contextmanager
def crowd(count: int) -> Iterator[None]:
    """Keep ``count`` other processes busy, as on a machine that is shared.

    Each has a session of its own, as those of other people have: Linux shares the cores among sessions first.
    """
    command = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def photographs(folder: Path, width: int, height: int, count: int) -> None:
    """JPEGs that are cut out of the photographs of scikit-image."""
    pictures = [Image.fromarray(getattr(data, name)()) for name in ("astronaut", "chelsea", "coffee", "rocket")]
    for number in range(count):
        picture = pictures[number % len(pictures)]
        part = picture.crop((number, number, picture.width - 9, picture.height - 9))
        part.resize((width, height)).save(folder / f"{number}.jpg", quality=90)
    (folder / "names.txt").write_text("\n".join(f"{number}.jpg" for number in range(count)))


def _large(folder: Path) -> None:
    photographs(folder, 2000, 1500, 8)


def _thumbs(folder: Path) -> None:
    photographs(folder, 160, 120, 60)


def _fields(folder: Path) -> None:
    for number in range(12):
        smooth = np.random.default_rng(number).standard_normal((4, 256, 224)).astype(np.float32).round(1)
        np.save(folder / f"{number}.npy", smooth)
        np.savez_compressed(folder / f"{number}.npz", field=smooth)


def _scans(folder: Path) -> None:
    page = np.asarray(Image.fromarray(data.page()).resize((1536, 1024)).convert("RGB"))
    for number in range(6):
        turned = np.roll(page, 37 * number, axis=1)
        Image.fromarray(turned).save(folder / f"{number}.png")
        np.save(folder / f"{number}.npy", turned)


def _records(folder: Path) -> None:
    for number in range(40):
        np.random.default_rng(number).standard_normal(8192).astype(np.float32).tofile(folder / f"record{number}.bin")
    (folder / "records.txt").write_text("\n".join(f"record{number}.bin" for number in range(40)))


def _filled(folder: Path) -> None:
    for number in range(320):
        np.random.default_rng(number).standard_normal(8192).astype(np.float32).tofile(folder / f"{number}.bin")


def _tiles(folder: Path) -> None:
    for number in range(8):
        pixels = np.random.default_rng(number).integers(0, 65535, (4, 720, 720), dtype=np.uint16)
        pixels.tofile(folder / f"tile{number}.raw")


def _scenes(folder: Path) -> None:
    for number in range(24):
        scene, draw = folder / f"scene{number}", np.random.default_rng(number)
        scene.mkdir()
        np.save(scene / "image.npy", draw.integers(0, 255, (3, 48, 64), dtype=np.uint8))
        np.save(scene / "depth.npy", draw.random((48, 64)).astype(np.float32))
        np.save(scene / "mask.npy", draw.integers(0, 5, (48, 64), dtype=np.uint8))
        (scene / "camera.json").write_text(json.dumps({"focal": draw.random(), "pose": draw.random(12).tolist()}))
        (scene / "objects.json").write_text(json.dumps([{"box": draw.random(4).tolist()} for _ in range(6)]))


def _volume(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (128, 512, 512), dtype=np.uint8)
    tifffile.imwrite(folder / "volume.tif", pixels, photometric="minisblack")


def _visits(folder: Path) -> None:
    draw = np.random.default_rng(0)
    columns = {f"feature{number}": draw.standard_normal(60_000).astype(np.float32) for number in range(24)}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "visits.parquet")


_MAKERS: dict[str, Callable[[Path], None]] = {
    "large": _large,
    "thumbs": _thumbs,
    "fields": _fields,
    "scans": _scans,
    "records": _records,
    "filled": _filled,
    "tiles": _tiles,
    "scenes": _scenes,
    "volume": _volume,
    "visits": _visits,
}


def make(folder: Path) -> dict[str, str]:
    """Make every data set that is not there yet; name -> its folder."""
    for name, maker in _MAKERS.items():
        if not (folder / name).exists():
            unfinished = folder / f"{name}.unfinished"
            unfinished.mkdir(parents=True)
            maker(unfinished)
            unfinished.rename(folder / name)
    return {name: str(folder / name) for name in _MAKERS}


class _Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    delay_s = 0.0
    bps = 0.0

    def do_GET(self) -> None:
        """Send a file late, and no faster than allowed."""
        time.sleep(self.delay_s)
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        body = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for begin in range(0, len(body), _CHUNK):
            self.wfile.write(body[begin : begin + _CHUNK])
            if self.bps:
                time.sleep(_CHUNK / self.bps)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was ended in the middle of an answer is no error."""


def _serve(folder: str, delay_s: float, bps: float, port: multiprocessing.Queue[int]) -> None:
    _Handler.delay_s, _Handler.bps = delay_s, bps
    server = _Server(("127.0.0.1", 0), partial(_Handler, directory=folder))
    port.put(server.server_port)
    server.serve_forever()


@contextlib.contextmanager
def serving(folder: str, delay_ms: float, mbps: float) -> Iterator[str]:
    """Offer a folder from a process of its own; its address."""
    context = multiprocessing.get_context("spawn")
    port: multiprocessing.Queue[int] = context.Queue()
    process = context.Process(target=_serve, args=(folder, delay_ms / 1000, mbps * 1e6, port), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{port.get(timeout=60)}"
    finally:
        process.kill()
        process.join()
