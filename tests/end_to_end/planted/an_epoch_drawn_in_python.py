"""Each epoch's triples are drawn in a Python loop before its steps; functions compute, not modules."""

import logging

import numpy as np
import torch
from torch.nn import functional

logging.basicConfig(level=logging.INFO, format="%(message)s")
generator = np.random.default_rng(0)
liked = [generator.choice(2000, 20, replace=False) for _ in range(500)]
items = torch.randn(2000, 32, requires_grad=True)
users = torch.randn(500, 32, requires_grad=True)
optimizer = torch.optim.SGD([items, users], lr=0.1)


def pairs(count):
    rows = []
    for user in generator.integers(0, 500, count):
        good = liked[user][generator.integers(0, 20)]
        bad = generator.integers(0, 2000)
        while bad in liked[user]:
            bad = generator.integers(0, 2000)
        rows.append([user, good, bad])
    return torch.from_numpy(np.array(rows))


def ranking(rows):
    by_user = users[rows[:, 0]]
    return functional.softplus((by_user * items[rows[:, 2]]).sum(1) - (by_user * items[rows[:, 1]]).sum(1)).mean()


for epoch in range(10_000):
    logging.info("epoch %d", epoch)
    drawn = pairs(20 * 1024)
    for rows in drawn.split(1024):
        loss = ranking(rows)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
