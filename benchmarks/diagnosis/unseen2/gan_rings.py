# Vanilla GAN on 28x28 ring drawings
import numpy as np
import torch
import torch.nn as nn

BATCH = 256
Z = 128
ITERS = 20000


def draw_rings(n=10000, side=28):
    rng = np.random.default_rng(0)
    yy, xx = np.mgrid[:side, :side].astype(np.float32)
    cy, cx = rng.uniform(10, 18, (2, n, 1, 1)).astype(np.float32)
    a, b = rng.uniform(4, 9, (2, n, 1, 1)).astype(np.float32)
    d = np.sqrt(((yy - cy) / a) ** 2 + ((xx - cx) / b) ** 2)
    img = np.exp(-((d - 1) / 0.2) ** 2)
    return torch.from_numpy(img.reshape(n, -1) * 2 - 1)


def set_grad(net, flag):
    for p in net.parameters():
        p.requires_grad_(flag)


torch.manual_seed(0)
real_images = draw_rings()

G = nn.Sequential(
    nn.Linear(Z, 1024), nn.LeakyReLU(0.2),
    nn.Linear(1024, 1024), nn.LeakyReLU(0.2),
    nn.Linear(1024, 784), nn.Tanh())
D = nn.Sequential(
    nn.Linear(784, 1024), nn.LeakyReLU(0.2),
    nn.Linear(1024, 512), nn.LeakyReLU(0.2),
    nn.Linear(512, 1))

opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
bce = nn.BCEWithLogitsLoss()
ones, zeros = torch.ones(BATCH, 1), torch.zeros(BATCH, 1)

for it in range(1, ITERS + 1):
    real = real_images[torch.randint(len(real_images), (BATCH,))]
    fake = G(torch.randn(BATCH, Z))

    # --- discriminator
    set_grad(D, True)
    loss_d = bce(D(real), ones) + bce(D(fake.detach()), zeros)
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()

    # --- generator: same fakes through the updated discriminator
    set_grad(D, False)
    loss_g = bce(D(fake), ones)
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()

    if it % 20 == 0:
        print(f"{it:6d}  D {loss_d.item():.4f}  G {loss_g.item():.4f}", flush=True)
