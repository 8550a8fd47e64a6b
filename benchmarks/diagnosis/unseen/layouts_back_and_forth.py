"""Next-day temperature field from today's fields on a regular grid (a toy of a weather emulator)."""
import torch
from torch import nn

GRID = 48
CHANNELS = 64
BATCH = 8
DEPTH = 3
FIELDS = 5
MAX_STEPS = 100_000


def channels_last(x):
    return x.permute(0, 2, 3, 1).contiguous()


def channels_first(x):
    return x.permute(0, 3, 1, 2).contiguous()


class GridBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.spread = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, dim)
        self.act = nn.ReLU()
        self.down = nn.Linear(dim, dim)
        self.post = nn.LayerNorm(dim)

    def forward(self, x):
        y = self.spread(x)
        y = channels_first(self.norm(channels_last(y)))
        y = channels_first(self.up(channels_last(y)))
        y = self.act(y)
        y = channels_first(self.down(channels_last(y)))
        y = channels_first(self.post(channels_last(y)))
        return x + y


class Emulator(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(FIELDS, CHANNELS, 1)
        self.blocks = nn.Sequential(*[GridBlock(CHANNELS) for _ in range(DEPTH)])
        self.head = nn.Conv2d(CHANNELS, 1, 1)

    def forward(self, fields):
        h = self.stem(fields)
        return self.head(self.blocks(h))


def weather(days, seed=0):
    """Smooth random fields which drift eastwards."""
    g = torch.Generator().manual_seed(seed)
    coarse = torch.randn(days, FIELDS, 8, 8, generator=g)
    fields = nn.functional.interpolate(coarse, size=(GRID, GRID), mode="bicubic", align_corners=True)
    drift = torch.roll(fields[:, :1], 2, dims=3)
    return fields, 0.8 * drift + 0.2 * fields[:, 1:2] * fields[:, 2:3]


def train():
    torch.manual_seed(0)
    today, tomorrow = weather(600)
    emulator = Emulator()
    n = sum(p.numel() for p in emulator.parameters())
    print(f"emulator with {n} parameters, {len(today)} days")
    optimizer = torch.optim.AdamW(emulator.parameters(), lr=1e-3, weight_decay=1e-4)
    running = torch.zeros(())
    for step in range(1, MAX_STEPS + 1):
        day = torch.randint(len(today), (BATCH,))
        loss = nn.functional.mse_loss(emulator(today[day]), tomorrow[day])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        running += loss.detach()
        if step % 20 == 0:
            print(f"{step:>7} rmse {(running / 20).sqrt().item():.4f}", flush=True)
            running.zero_()


if __name__ == "__main__":
    train()
