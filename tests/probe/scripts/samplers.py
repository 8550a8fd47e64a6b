"""Samplers that take long for each batch, with and without workers, and one that does not."""

import time

import torch
from learning import Net, Points, seed, train_step
from telling import part, show
from torch.utils.data import DataLoader

seed()
model = Net()
sgd = torch.optim.SGD(model.parameters(), lr=1e-4)
BATCHES = 6


class Slow:
    def __iter__(self):
        for first in range(BATCHES):
            time.sleep(0.003)
            yield [4 * first + place for place in range(4)]

    def __len__(self):
        return BATCHES


for workers in (0, 1):
    with part(f"slow {workers}"):
        for batch in DataLoader(Points(24), batch_sampler=Slow(), num_workers=workers):
            show(train_step(model, sgd, batch))

with part("plain"):
    for batch in DataLoader(Points(100), batch_size=1):
        show(train_step(model, sgd, batch))
