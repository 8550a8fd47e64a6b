"""No DataLoader: pictures are decoded and made small between two steps."""

import io
import random

import torch
from PIL import Image
from torch import nn


def files(count):
    for _ in range(count):
        data = io.BytesIO()
        Image.effect_noise((900, 700), 60).convert("RGB").save(data, "JPEG", quality=92)
        yield data.getvalue()


def load_picture(data):
    small = Image.open(io.BytesIO(data)).convert("RGB").resize((64, 64))
    return torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8).float()


def main():
    pictures = list(files(16))
    net = nn.Sequential(nn.Linear(64 * 64 * 3, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(10_000):
        images = torch.stack([load_picture(random.choice(pictures)) for _ in range(4)])
        loss = nn.functional.cross_entropy(net(images), torch.randint(10, (4,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
