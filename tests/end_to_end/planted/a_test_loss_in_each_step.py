"""A network that learns a field from its gradients, and computes a test loss in each step for a curve."""

import torch
from torch import nn

SIZE, BATCH = 256, 512


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, SIZE), nn.Tanh(), nn.Linear(SIZE, SIZE), nn.Tanh(), nn.Linear(SIZE, 1))

    def slope(self, x):
        return torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0]


def main():
    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-3, fused=True)
    x, test_x = torch.randn(20_000, 8), torch.randn(20_000, 8)
    curve = []
    for _ in range(100_000):
        batch = x[torch.randint(len(x), (BATCH,))].requires_grad_()
        loss = (field.slope(batch) - batch.cos()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        batch = test_x[torch.randint(len(test_x), (BATCH,))].requires_grad_()
        test_loss = (field.slope(batch) - batch.cos()).square().mean()
        curve.append((loss.item(), test_loss.item()))


if __name__ == "__main__":
    main()
