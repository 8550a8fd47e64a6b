"""WGAN-GP for tabular data (a synthetic particle-shower table): critic with a penalty on its slope between real and fake."""
import math

import torch
import torch.nn as nn

BATCH = 48
HIDDEN = 512
LATENT = 24
COLUMNS = 16
N_CRITIC = 2
PENALTY = 10.0


def mlp(n_in, n_out, act):
    return nn.Sequential(
        nn.Linear(n_in, HIDDEN), act(), nn.Linear(HIDDEN, HIDDEN), act(), nn.Linear(HIDDEN, HIDDEN), act(), nn.Linear(HIDDEN, n_out)
    )


def showers(n):
    energy = torch.rand(n, 1) * 2 + 0.5
    depth = torch.linspace(0.2, 4, COLUMNS)
    start = 0.3 * torch.randn(n, 1)
    shape = (depth * energy).pow(1.5) * torch.exp(-(depth - start) * 1.3)
    return torch.log1p(shape.clamp(min=0)) + 0.02 * torch.randn(n, COLUMNS)


def slopes(critic, points):
    def value(p):
        return critic(p.unsqueeze(0)).squeeze()

    rows = []
    for p in points:
        p = p.detach().requires_grad_(True)
        rows.append(torch.autograd.grad(value(p), p, create_graph=True)[0])
    return torch.stack(rows)


def critic_update(critic, generator, optimizer, real):
    with torch.no_grad():
        fake = generator(torch.randn(len(real), LATENT))
    mix = torch.rand(len(real), 1)
    between = mix * real + (1 - mix) * fake
    distance = critic(real).mean() - critic(fake).mean()
    penalty = (slopes(critic, between).norm(dim=1) - 1).square().mean()
    optimizer.zero_grad()
    (PENALTY * penalty - distance).backward()
    optimizer.step()
    return distance.item(), penalty.item()


def generator_update(critic, generator, optimizer, n):
    loss = -critic(generator(torch.randn(n, LATENT))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


if __name__ == "__main__":
    torch.manual_seed(math.floor(math.pi * 100))
    table = showers(50_000)
    mean, std = table.mean(0), table.std(0)
    table = (table - mean) / std
    critic = mlp(COLUMNS, 1, nn.Softplus)
    generator = mlp(LATENT, COLUMNS, nn.ReLU)
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
    opt_g = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))

    for it in range(100_000):
        for _ in range(N_CRITIC):
            real = table[torch.randint(len(table), (BATCH,))]
            w, gp = critic_update(critic, generator, opt_c, real)
        g_loss = generator_update(critic, generator, opt_g, BATCH)
        if it % 20 == 0:
            print(f"{it:6d} | wasserstein {w:8.4f} | penalty {gp:7.4f} | generator {g_loss:8.4f}", flush=True)
