#!/usr/bin/env python
"""A recursive encoder for arithmetic expressions: does a random expression evaluate to a positive number?"""
import atexit
import collections
import random
import sys
import time

import torch
from torch import nn

DIM = 32
BATCH = 12
MAX_DEPTH = 3

OPS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "max": max, "min": min}


class Lines:
    """How often each line was run, and how long that took."""

    def __init__(self):
        self.count = collections.Counter()
        self.spent = collections.defaultdict(float)
        self.last, self.since = None, time.perf_counter()

    def __call__(self, frame, event, arg):
        now = time.perf_counter()
        self.spent[self.last] += now - self.since
        self.last = frame.f_code.co_filename, frame.f_lineno
        if event == "line":
            self.count[self.last] += 1
        self.since = time.perf_counter()
        return self

    def show(self):
        sys.settrace(None)
        for (name, line), n in self.count.most_common(30):
            print(f"{n:10d} {self.spent[name, line]:8.3f} s  {name}:{line}", file=sys.stderr)


def grow(rng, depth):
    if depth == 0 or rng.random() < 0.15:
        return rng.randint(-9, 9)
    return (rng.choice(list(OPS)), grow(rng, depth - 1), grow(rng, depth - 1))


def value(tree):
    if isinstance(tree, int):
        return tree
    name, left, right = tree
    return OPS[name](value(left), value(right))


class Cell(nn.Module):
    """Child-sum cell with one gate per child."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(2 * DIM, DIM)
        self.act = nn.Tanh()
        self.gate = nn.Linear(2 * DIM, DIM)
        self.squash = nn.Sigmoid()

    def forward(self, left, right):
        both = torch.cat([left, right])
        g = self.squash(self.gate(both))
        return g * self.act(self.mix(both)) + (1 - g) * left


class TreeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.leaf = nn.Embedding(19, DIM)
        self.cells = nn.ModuleDict({"add": Cell(), "sub": Cell(), "mul": Cell(), "most": Cell(), "least": Cell()})
        self.names = {"+": "add", "-": "sub", "*": "mul", "max": "most", "min": "least"}
        self.out = nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, 1))

    def encode(self, tree, leaves):
        if isinstance(tree, int):
            return leaves[tree + 9]
        name, left, right = tree
        return self.cells[self.names[name]](self.encode(left, leaves), self.encode(right, leaves))

    def forward(self, trees):
        leaves = self.leaf.weight.unbind(0)
        return self.out(torch.stack([self.encode(t, leaves) for t in trees])).squeeze(1)


if __name__ == "__main__":
    rng = random.Random(8)
    torch.manual_seed(8)
    trees = [grow(rng, MAX_DEPTH) for _ in range(1500)]
    labels = torch.tensor([float(value(t) > 0) for t in trees])
    net = TreeNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3, fused=True)
    lines = Lines()
    atexit.register(lines.show)
    sys.settrace(lines)
    hits = shown = 0
    for step in range(1_000_000):
        pick = torch.randint(len(trees), (BATCH,))
        logits = net([trees[i] for i in pick.tolist()])
        loss = nn.functional.binary_cross_entropy_with_logits(logits, labels[pick])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hits += ((logits > 0) == (labels[pick] > 0)).sum().item()
        shown += BATCH
        if step % 100 == 99:
            print("step", step + 1, "accuracy", round(hits / shown, 4), flush=True)
            hits = shown = 0
