"""Batches come from a thread of the script's own, which works while the training waits for it."""

import queue
import threading
import time

import torch
from learning import Net, seed, train_step
from telling import part, show

seed()
model = Net()
sgd = torch.optim.SGD(model.parameters(), lr=1e-4)
STEPS = 12


def prepared(first):
    until = time.monotonic() + 0.15
    total = 0
    while time.monotonic() < until:
        total += sum(range(2000))
    points = torch.stack([torch.full((4,), float(first + place)) for place in range(4)])
    return points, torch.zeros(4, 1)


def produce(batches):
    for first in range(STEPS):
        batches.put(prepared(first))


def rest(done):
    done.wait()


batches = queue.Queue(2)
done = threading.Event()
idle = threading.Thread(target=rest, args=(done,))
idle.start()
threading.Thread(target=produce, args=(batches,)).start()
with part("thread"):
    for _ in range(STEPS):
        show(train_step(model, sgd, batches.get()))
done.set()
idle.join()
