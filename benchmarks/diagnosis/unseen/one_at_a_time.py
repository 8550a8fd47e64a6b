"""Which of six minerals is in the sample? Raman-like spectra, a small residual 1-d convolutional net."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 1
BANDS = 64
CHANNELS = 20
BLOCKS = 9


def spectra(n, seed):
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(0, 1, BANDS)
    centres = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    label = torch.randint(6, (n,), generator=g)
    shift = 0.01 * torch.randn(n, 1, generator=g)
    heights = 0.5 + torch.rand(n, 4, 1, generator=g)
    peaks = torch.exp(-0.5 * ((axis - (centres[label] + shift)[:, :, None]) / 0.015) ** 2)
    baseline = torch.rand(n, 1, generator=g) * axis + 0.1 * torch.randn(n, BANDS, generator=g)
    return TensorDataset(((heights * peaks).sum(1) + baseline)[:, None], label)


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = nn.Conv1d(c, c, 5, padding=2)
        self.norm = nn.GroupNorm(2, c)
        self.b = nn.Conv1d(c, c, 5, padding=2)

    def forward(self, x):
        return x + self.b(torch.relu(self.norm(self.a(x))))


class MineralNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv1d(1, CHANNELS, 7, padding=3)
        self.blocks = nn.Sequential(*(Residual(CHANNELS) for _ in range(BLOCKS)))
        self.out = nn.Linear(CHANNELS, 6)

    def forward(self, x):
        return self.out(self.blocks(self.stem(x)).amax(-1))


def accuracy(net, data):
    net.eval()
    x, y = data.tensors
    with torch.inference_mode():
        result = (net(x).argmax(1) == y).float().mean().item()
    net.train()
    return result


if __name__ == "__main__":
    torch.manual_seed(6)
    train, test = spectra(4000, 1), spectra(500, 2)
    loader = DataLoader(train, batch_size=BATCH, shuffle=True)
    net = MineralNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-4)
    seen, running = 0, 0.0
    for epoch in range(1000):
        for x, y in loader:
            loss = nn.functional.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            before, seen = seen, seen + len(x)
            running += (loss.item() - running) * min(1.0, len(x) / 500)
            if seen // 500 != before // 500:
                print(f"{seen} spectra seen, loss {running:.4f}", flush=True)
        print(f"== epoch {epoch}: test accuracy {accuracy(net, test):.3f}", flush=True)
