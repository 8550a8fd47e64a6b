"""Predict how a picture was rotated; the pictures live in an object store that speaks HTTP.

`python image_store_rotation.py serve` runs the stand-in for the store (started by itself).
"""
import atexit
import io
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import ProxyHandler, build_opener

N_IMAGES = 300
LATENCY = 0.015
BATCH = 8


def serve():
    import numpy as np
    from PIL import Image
    from skimage import data

    rng = np.random.default_rng(0)
    photos = [data.astronaut(), data.coffee(), data.chelsea()]
    blobs = []
    for i in range(N_IMAGES):
        img = photos[i % len(photos)]
        y = rng.integers(img.shape[0] - 192)
        x = rng.integers(img.shape[1] - 192)
        buf = io.BytesIO()
        Image.fromarray(img[y:y + 192, x:x + 192]).save(buf, "JPEG", quality=85)
        blobs.append(buf.getvalue())

    class Store(BaseHTTPRequestHandler):
        wbufsize = 1 << 18

        def do_GET(self):
            time.sleep(LATENCY)
            blob = blobs[int(self.path.rsplit("/", 1)[1])]
            self.send_response(200)
            self.send_header("Content-Type", "image/jpeg")
            self.send_header("Content-Length", str(len(blob)))
            self.end_headers()
            self.wfile.write(blob)

        def log_message(self, *args):
            pass

    def stop_with_parent(parent=os.getppid()):
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(0)

    threading.Thread(target=stop_with_parent, daemon=True).start()
    ThreadingHTTPServer.request_queue_size = 128
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def start_store():
    proc = subprocess.Popen([sys.executable, os.path.abspath(__file__), "serve"], stdout=subprocess.PIPE, text=True)
    atexit.register(proc.kill)
    return f"http://127.0.0.1:{int(proc.stdout.readline())}/images"


def main():
    import numpy as np
    import torch
    import torch.nn as nn
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset

    class RotatedImages(Dataset):
        def __init__(self, url):
            self.url = url
            self.web = build_opener(ProxyHandler({}))

        def __len__(self):
            return N_IMAGES * 20        # every picture comes in many crops

        def fetch(self, i):
            with self.web.open(f"{self.url}/{i % N_IMAGES}", timeout=10) as answer:
                return answer.read()

        def decode(self, blob):
            img = Image.open(io.BytesIO(blob)).convert("RGB")
            x0, y0 = torch.randint(0, 65, (2,)).tolist()
            img = np.asarray(img.crop((x0, y0, x0 + 128, y0 + 128)).resize((64, 64), Image.BILINEAR))
            k = int(torch.randint(4, (1,)))
            return torch.from_numpy(np.rot90(img, k).transpose(2, 0, 1).copy()), k

        def __getitem__(self, i):
            return self.decode(self.fetch(i))

    torch.manual_seed(0)
    loader = DataLoader(RotatedImages(start_store()), batch_size=BATCH, shuffle=True, drop_last=True,
                        num_workers=1, persistent_workers=True, prefetch_factor=4)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(128 * 8 * 8, 64), nn.ReLU(), nn.Linear(64, 4),
    )
    opt = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
    step, t0 = 0, time.time()
    for epoch in range(100):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.float() / 255), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f} {step * BATCH / (time.time() - t0):.0f} img/s", flush=True)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
