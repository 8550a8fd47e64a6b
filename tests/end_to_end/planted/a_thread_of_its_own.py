"""No DataLoader: one thread decodes pictures into a queue, more slowly than the training takes them."""

import io
import queue
import random
import threading

import torch
from PIL import Image
from torch import nn


def files(count):
    for _ in range(count):
        data = io.BytesIO()
        Image.effect_noise((1200, 900), 60).convert("RGB").save(data, "JPEG", quality=92)
        yield data.getvalue()


def load_picture(data):
    small = Image.open(io.BytesIO(data)).convert("RGB").resize((64, 64))
    return torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8).float()


def produce(batches, pictures):
    while True:
        batches.put(torch.stack([load_picture(random.choice(pictures)) for _ in range(8)]))


def main():
    batches = queue.Queue(4)
    threading.Thread(target=produce, args=(batches, list(files(16))), daemon=True).start()
    net = nn.Sequential(nn.Linear(64 * 64 * 3, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(100_000):
        loss = nn.functional.cross_entropy(net(batches.get()), torch.randint(2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
