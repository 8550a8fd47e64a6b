"""A long training on a machine that may go away: the state is kept often."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 1500
KEEP_EVERY = 3
BATCH = 16


class Trainer:
    def __init__(self, folder):
        self.model = nn.Sequential(
            nn.Linear(100, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 5)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.path = Path(folder, "state.pt")
        self.step = 0

    def keep(self):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        torch.save(state, self.path.with_suffix(".new"))
        self.path.with_suffix(".new").replace(self.path)

    def fit(self, loader):
        for _ in range(100):
            for x, y in loader:
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.step += 1
                if self.step % KEEP_EVERY == 0:
                    self.keep()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=".")
    data = TensorDataset(torch.rand(4096, 100), torch.randint(5, (4096,)))
    Trainer(parser.parse_args().out).fit(DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=0))
