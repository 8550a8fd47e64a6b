"""Cell segmentation with a small U-Net (48x48 phase-contrast patches)."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PATCH = 48
N_PATCHES = 4000
EPOCHS = 200
BATCH_SIZE = 1        # as in the U-Net paper, momentum 0.99 does the averaging
LR = 1e-3
MOMENTUM = 0.99


def make_patches(n, seed=0):
    """Bright round cells on an uneven background -> (image, mask)."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:PATCH, :PATCH].astype(np.float32)
    images = np.empty((n, 1, PATCH, PATCH), np.float32)
    masks = np.zeros((n, PATCH, PATCH), np.int64)
    for i in range(n):
        img = 0.3 + 0.2 * xx / PATCH * rng.random() + 0.05 * rng.standard_normal((PATCH, PATCH)).astype(np.float32)
        for _ in range(rng.integers(1, 5)):
            cy, cx = rng.uniform(4, PATCH - 4, 2)
            r = rng.uniform(3, 8)
            cell = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
            img[cell] += rng.uniform(0.15, 0.4)
            masks[i][cell] = 1
        images[i, 0] = img
    images -= images.mean()
    images /= images.std()
    return torch.from_numpy(images), torch.from_numpy(masks)


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, base=8, classes=2):
        super().__init__()
        self.d1 = double_conv(1, base)
        self.d2 = double_conv(base, base * 2)
        self.d3 = double_conv(base * 2, base * 4)
        self.u2 = nn.ConvTranspose2d(base * 4, base * 2, 2, stride=2)
        self.c2 = double_conv(base * 4, base * 2)
        self.u1 = nn.ConvTranspose2d(base * 2, base, 2, stride=2)
        self.c1 = double_conv(base * 2, base)
        self.out = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        b = self.c2(torch.cat([self.u2(c), b], 1))
        a = self.c1(torch.cat([self.u1(b), a], 1))
        return self.out(a)


def main():
    torch.manual_seed(0)
    images, masks = make_patches(N_PATCHES)
    net = UNet()
    opt = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM)
    loss_fn = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(EPOCHS):
        order = torch.randperm(N_PATCHES)
        for idx in order.split(BATCH_SIZE):
            x, y = images[idx], masks[idx]
            opt.zero_grad()
            loss = loss_fn(net(x), y)
            loss.backward()
            opt.step()
            step += 1
            if step % 50 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
