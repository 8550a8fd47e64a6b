"""Pose from boxes: annotations as they come out of the labelling tool (a list of dicts), a small regressor on top."""
import gc
import random
import time

import numpy as np
import torch
from torch import nn

N_LABELS = 200000
BATCH = 256
WIDTH = 768


def read_annotations():
    rng = np.random.default_rng(8)
    boxes = rng.random((N_LABELS, 4), dtype=np.float32)
    joints = boxes[:, [0, 1, 2, 3, 0, 1]] * 0.7 + 0.2 * np.sin(6 * boxes[:, [1, 2, 3, 0, 2, 3]])
    joints += 0.02 * rng.standard_normal(joints.shape, dtype=np.float32)
    people = rng.integers(0, 9000, N_LABELS).tolist()
    return [
        {"image": i // 3, "person": p, "box": b, "joints": j}
        for i, (p, b, j) in enumerate(zip(people, boxes.tolist(), joints.tolist()))
    ]


def batches(labels, seed=0):
    rng = random.Random(seed)
    while True:
        chosen = [labels[rng.randrange(len(labels))] for _ in range(BATCH)]
        yield torch.tensor([c["box"] for c in chosen]), torch.tensor([c["joints"] for c in chosen])


started = time.time()
labels = read_annotations()
print(f"{len(labels)} annotations read in {time.time() - started:.1f} s")

torch.manual_seed(8)
lift = torch.randn(4, 64) * 3
net = nn.Sequential(
    nn.Linear(128, WIDTH), nn.GELU(),
    nn.Linear(WIDTH, WIDTH), nn.GELU(),
    nn.Linear(WIDTH, WIDTH), nn.GELU(),
    nn.Linear(WIDTH, WIDTH), nn.GELU(),
    nn.Linear(WIDTH, 6),
)
opt = torch.optim.AdamW(net.parameters(), lr=5e-4)

average = None
for step, (box, joints) in enumerate(batches(labels)):
    angles = box @ lift
    guess = net(torch.cat([angles.sin(), angles.cos()], 1))
    loss = nn.functional.smooth_l1_loss(guess, joints, beta=0.05)
    opt.zero_grad()
    loss.backward()
    opt.step()
    average = loss.detach() if average is None else torch.lerp(average, loss.detach(), 0.02)
    del guess, loss, angles
    gc.collect()
    if step % 50 == 0:
        print(f"step {step:6d}  smooth l1 {average.item():.5f}", flush=True)
    if step == 200_000:
        break
