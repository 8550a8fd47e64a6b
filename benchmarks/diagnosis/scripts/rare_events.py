"""Rare events are drawn more often, with weights for every event there is."""

import torch
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler

EVENTS = 12_000_000
PER_EPOCH = 4096
BATCH = 64


class Events(Dataset):
    def __init__(self):
        self.kinds = torch.rand(5000, 8)

    def __len__(self):
        return EVENTS

    def __getitems__(self, indices):
        rows = torch.tensor(indices) % len(self.kinds)
        return [(self.kinds[rows], rows % 2)]


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 512), torch.nn.ReLU(), torch.nn.Linear(512, 2))

    def forward(self, x):
        return self.layers(x)


def train():
    torch.manual_seed(1)
    weights = torch.where(torch.rand(EVENTS) < 0.02, 25.0, 1.0)
    sampler = WeightedRandomSampler(weights, PER_EPOCH)
    loader = DataLoader(Events(), batch_size=BATCH, sampler=sampler, collate_fn=lambda batches: batches[0])
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(400):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


train()
