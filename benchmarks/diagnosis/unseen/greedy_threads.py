import torch
import torch.nn as nn

THREADS = 24
WIDTH = 128
ROWS = 256

torch.set_num_threads(THREADS)
torch.manual_seed(2024)


def make_data(n=16_384, d=40):
    """Electricity demand of a district: weather, calendar, lagged loads."""
    x = torch.randn(n, d)
    hour = torch.rand(n, 1) * 24
    x = torch.cat([x, torch.sin(hour * 0.2618), torch.cos(hour * 0.2618)], 1)
    y = x[:, 0].tanh() * 2 + x[:, 1] * x[:, 40] + 0.5 * x[:, 2].abs() + 0.1 * torch.randn(n)
    return x, y


class GatedLayer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.value = nn.Linear(d, d)
        self.gate = nn.Linear(d, d)
        self.norm = nn.LayerNorm(d)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.norm(x + self.drop(nn.functional.silu(self.value(x)) * torch.sigmoid(self.gate(x))))


class Demand(nn.Module):
    def __init__(self, n_in, layers=8):
        super().__init__()
        self.inp = nn.Linear(n_in, WIDTH)
        self.layers = nn.ModuleList(GatedLayer(WIDTH) for _ in range(layers))
        self.mean = nn.Linear(WIDTH, 1)
        self.log_scale = nn.Linear(WIDTH, 1)

    def forward(self, x):
        h = self.inp(x)
        for layer in self.layers:
            h = layer(h)
        return self.mean(h).squeeze(1), self.log_scale(h).squeeze(1).clamp(-5, 5)


def gaussian_nll(mean, log_scale, y):
    return (log_scale + 0.5 * ((y - mean) * torch.exp(-log_scale)) ** 2).mean()


x, y = make_data()
model = Demand(x.shape[1])
optim = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-2, fused=True)
schedule = torch.optim.lr_scheduler.LinearLR(optim, 0.1, 1.0, 200)

for epoch in range(5000):
    perm = torch.randperm(len(x))
    losses = []
    for rows in perm.split(ROWS):
        loss = gaussian_nll(*model(x[rows]), y[rows])
        optim.zero_grad()
        loss.backward()
        optim.step()
        schedule.step()
        losses.append(loss.detach())
    if epoch % 4 == 0:
        print(f"epoch {epoch:4d}  nll {torch.stack(losses).mean().item():+.4f}", flush=True)
