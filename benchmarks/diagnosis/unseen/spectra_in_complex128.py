#!/usr/bin/env python3
# Quake or quarry blast? Three-component seismograms, spectral features, a small convnet over time.
import torch
import torch.nn as nn

BATCH = 12
WINDOW = 512
N_BANDS = 40
HOP = 128
SAMPLES = 8192

torch.manual_seed(1906)


def make_events(n):
    t = torch.arange(SAMPLES) / 100.0
    kind = torch.randint(2, (n,))
    onset = torch.rand(n, 1, 1) * 20 + 5
    freq = torch.where(kind == 1, 9.0, 4.0).view(n, 1, 1) + torch.rand(n, 3, 1)
    tail = torch.where(kind == 1, 4.0, 11.0).view(n, 1, 1)
    since = (t - onset).clamp(min=0)
    wave = torch.sin(6.283 * freq * since) * torch.exp(-since / tail) * (since > 0)
    return (wave + 0.3 * torch.randn(n, 3, SAMPLES)).float(), kind


class SpectralFeatures(nn.Module):
    """Log power, phase advance and a learned band pooling of a short-time Fourier transform."""

    def __init__(self):
        super().__init__()
        bins = WINDOW // 2 + 1
        self.register_buffer("taper", torch.hann_window(WINDOW, dtype=torch.float64))
        centre = torch.linspace(0, bins - 1, N_BANDS)
        width = bins / N_BANDS
        pool = torch.exp(-0.5 * ((torch.arange(bins)[:, None] - centre) / width) ** 2)
        self.pool = nn.Parameter(pool / pool.sum(0))

    def forward(self, x):
        x = x.double()
        frames = x.unfold(-1, WINDOW, HOP) * self.taper
        z = torch.fft.rfft(frames)
        power = torch.log(z.real.square() + z.imag.square() + 1e-9)
        advance = torch.angle(z[..., 1:, :] * z[..., :-1, :].conj())
        advance = torch.cos(nn.functional.pad(advance, (0, 0, 1, 0)))
        pool = self.pool.double()
        feats = torch.cat([power @ pool, advance @ pool], dim=-1)
        return feats.float()


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = SpectralFeatures()
        self.norm = nn.BatchNorm1d(6 * N_BANDS)
        self.body = nn.Sequential(
            nn.Conv1d(6 * N_BANDS, 32, 3, padding=1), nn.ReLU(),
            nn.Conv1d(32, 32, 3, padding=1, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, 2),
        )

    def forward(self, x):
        f = self.features(x)                       # event, component, frame, feature
        f = f.permute(0, 1, 3, 2).flatten(1, 2)
        return self.body(self.norm(f))


waves, kinds = make_events(600)
model = Discriminator()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
criterion = nn.CrossEntropyLoss()

iteration = 0
for epoch in range(2000):
    order = torch.randperm(len(waves))
    for idx in order.split(BATCH):
        optimizer.zero_grad()
        loss = criterion(model(waves[idx]), kinds[idx])
        loss.backward()
        optimizer.step()
        iteration += 1
        if iteration % 100 == 0:
            print("it %6d   loss %.5f" % (iteration, loss.item()), flush=True)
