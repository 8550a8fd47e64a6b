"""One ordinary training on the GPU, and one fault at a time that can be planted into it.

Usage: planted.py FAULT [--steps N] [--batch-size N] [--width N] [--size PX] [--workers N]
"""

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, count, size):
        self.pixels = torch.randn(64, 3, size, size)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.pixels[index % 64], index % 10


def convolutions(width):
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def products(width, size):
    layers = [nn.Flatten(), nn.Linear(3 * size * size, 16 * width), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(16 * width, 16 * width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(16 * width, 10))


class Chain(nn.Module):
    """Hundreds of kernels on a few numbers each: launching them takes longer than they do."""

    def __init__(self, links):
        super().__init__()
        self.links = nn.ModuleList(nn.Linear(16, 16) for _ in range(links))
        self.begin, self.end = nn.Linear(3, 16), nn.Linear(16, 10)

    def forward(self, images):
        x = self.begin(images.mean((2, 3)))
        for link in self.links:
            x = x + torch.tanh(link(x)) * 0.1
        return self.end(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fault")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    fault, device = options.fault, torch.device("cuda")
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = fault != "cudnn_benchmark_off"
    torch.set_float32_matmul_precision("highest" if fault == "fp32_where_tf32_serves" else "high")
    torch.backends.cudnn.allow_tf32 = fault != "fp32_where_tf32_serves"
    batch_size = 2 if fault == "small_batch" else options.batch_size
    if fault == "tiny_kernels":
        model = Chain(300)
    elif fault == "fp32_where_tf32_serves":
        model = products(options.width, options.size)
    else:
        model = convolutions(options.width)
    model = model.to(device)
    if fault == "none":
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    pinned = fault != "pageable_copies"
    size = 4 * options.size if fault == "pageable_copies" else options.size
    loader = DataLoader(
        Pictures(options.steps * batch_size, size),
        batch_size=batch_size,
        num_workers=options.workers,
        pin_memory=pinned,
    )
    shown = 0.0
    for images, labels in loader:
        if fault == "idle_gpu":
            time.sleep(0.05)
        images = images.to(device, non_blocking=pinned)
        labels = labels.to(device, non_blocking=pinned)
        if fault == "pageable_copies":
            images = images[:, :, :8, :8]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if fault == "sync_in_the_loop":
            for parameter in model.parameters():
                shown += parameter.grad.norm().item()
    torch.cuda.synchronize()
    print("loss %.4f" % loss.item(), shown)


if __name__ == "__main__":
    main()
