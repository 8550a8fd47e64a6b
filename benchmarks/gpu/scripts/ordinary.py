"""An ordinary training on the GPU that says what it saw of its settings, its losses, and how long a step took.

Usage: ordinary.py [--steps N] [--batch-size N] [--width N] [--size PX]
"""

import argparse
import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--size", type=int, default=48)
    options = parser.parse_args()
    torch.manual_seed(0)
    count, width = options.batch_size * 4, options.width
    data = TensorDataset(torch.randn(count, 3, options.size, options.size), torch.randint(0, 10, (count,)))
    loader = DataLoader(data, batch_size=options.batch_size)
    layers = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    seen = {"losses": []}
    step, begin = 0, 0.0
    while step < options.steps:
        for images, labels in loader:
            seen["pinned"] = images.is_pinned()
            seen["batch_size"] = len(images)
            images, labels = images.to("cuda"), labels.to("cuda")
            optimizer.zero_grad()
            output = model(images)
            loss = nn.functional.cross_entropy(output, labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            value = loss.item()
            if step % 10 == 0:
                seen["losses"].append(float(value))
            step += 1
            if step == options.steps // 3:
                torch.cuda.synchronize()
                begin = time.perf_counter()
            if step >= options.steps:
                break
    torch.cuda.synchronize()
    seen.update(
        step_ms=1000 * (time.perf_counter() - begin) / (options.steps - options.steps // 3),
        scalar=type(value).__name__,
        fused=bool(optimizer.param_groups[0]["fused"]),
        channels_last=model[0].weight.is_contiguous(memory_format=torch.channels_last),
        precision=torch.get_float32_matmul_precision(),
        benchmark=torch.backends.cudnn.benchmark,
        compiled=model._compiled_call_impl is not None,
        peak_bytes=torch.cuda.max_memory_allocated(),
    )
    print("RESULT " + json.dumps(seen))


if __name__ == "__main__":
    main()
