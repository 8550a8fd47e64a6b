"""Tested often, and kept more often still."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EVERY = 15
HELD_BACK = 5000
WIDTH = 1300
KEEP = 4


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(128, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        return self.head(self.body(x))


def test(net, loader):
    net.eval()
    with torch.no_grad():
        losses = [nn.functional.cross_entropy(net(x), y) for x, y in loader]
    net.train()
    return torch.stack(losses).mean()


def main():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    train = DataLoader(TensorDataset(torch.rand(9600, 128), torch.randint(4, (9600,))), batch_size=64, shuffle=True)
    held_back = DataLoader(TensorDataset(torch.rand(HELD_BACK, 128), torch.randint(4, (HELD_BACK,))), batch_size=64)
    step = 0
    for epoch in range(30):
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % EVERY == 0:
                print(step, test(net, held_back).item())
            if step % KEEP == 0:
                torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "kept.pt")


if __name__ == "__main__":
    main()
