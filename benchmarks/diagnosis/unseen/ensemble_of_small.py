"""Deep ensemble for the solubility of made-up molecules: the spread of the members is the error bar."""
import torch
from torch import nn

MEMBERS = 48
HIDDEN = 64
BATCH = 128
FEATURES = 24


def molecules(n, gen):
    x = torch.randn(n, FEATURES, generator=gen)
    x[:, :6] = (x[:, :6] > 0.5).float()
    y = 1.5 * x[:, 0] * x[:, 8] - x[:, 9].sin() + 0.5 * x[:, 10] * x[:, 11] - 0.8 * x[:, 2]
    return x, y + 0.2 * torch.randn(n, generator=gen)


class Member(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(FEATURES, HIDDEN), nn.Tanh(),
            nn.Linear(HIDDEN, HIDDEN), nn.Tanh(),
            nn.Linear(HIDDEN, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Ensemble(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.members = nn.ModuleList([Member() for _ in range(size)])

    def forward(self, x):
        """x: members x batch x features -> members x batch"""
        predictions = []
        for i, member in enumerate(self.members):
            predictions.append(member(x[i]))
        return torch.stack(predictions)


class Bags:
    """Every member sees a bootstrap sample of its own."""

    def __init__(self, x, y, gen):
        self.x, self.y = x, y
        self.rows = torch.randint(len(x), (MEMBERS, len(x)), generator=gen)

    def __len__(self):
        return len(self.x) // BATCH

    def __iter__(self):
        order = torch.randperm(len(self.x))
        for k in range(len(self)):
            rows = self.rows[:, order[k * BATCH:(k + 1) * BATCH]]
            yield self.x[rows], self.y[rows]


def report(epoch, mse, ensemble, x, y):
    with torch.no_grad():
        p = ensemble(x.expand(MEMBERS, -1, -1))
    mean, spread = p.mean(0), p.std(0)
    rmse = (mean - y).square().mean().sqrt().item()
    covered = ((mean - y).abs() < 2 * (spread ** 2 + 0.04).sqrt()).float().mean().item()
    print(f"epoch {epoch}: train mse {mse:.4f}, test rmse {rmse:.4f}, spread {spread.mean().item():.4f}, "
          f"within two sigma {100 * covered:.0f} %", flush=True)


def main():
    gen = torch.Generator().manual_seed(31)
    torch.manual_seed(31)
    x, y = molecules(8000, gen)
    x_test, y_test = molecules(500, gen)
    bags = Bags(x, y, gen)
    ensemble = Ensemble(MEMBERS)
    optimizer = torch.optim.Adam(ensemble.parameters(), lr=1e-3)
    for epoch in range(1, 3001):
        total = 0.0
        for inputs, targets in bags:
            loss = (ensemble(inputs) - targets).square().mean(1).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() / MEMBERS
        if epoch % 2 == 0:
            report(epoch, total / len(bags), ensemble, x_test, y_test)


if __name__ == "__main__":
    main()
