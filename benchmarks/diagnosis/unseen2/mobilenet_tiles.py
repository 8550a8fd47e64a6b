"""Small MobileNet for land cover tiles, ported from our Keras code (inputs are NHWC)."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = 6
BATCH = 32


def nchw(x):
    return x.permute(0, 3, 1, 2).contiguous()


def nhwc(x):
    return x.permute(0, 2, 3, 1).contiguous()


class Conv2D(nn.Module):
    def __init__(self, cin, cout, k, strides=1, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, k, stride=strides, padding=k // 2, groups=groups, bias=False)

    def forward(self, x):
        return nhwc(self.conv(nchw(x)))


class DepthwiseConv2D(Conv2D):
    def __init__(self, channels, k, strides=1):
        super().__init__(channels, channels, k, strides, groups=channels)


class BatchNormalization(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)   # Keras defaults

    def forward(self, x):
        return nhwc(self.bn(nchw(x)))


class SeparableBlock(nn.Module):
    def __init__(self, cin, cout, strides=1):
        super().__init__()
        self.depthwise = DepthwiseConv2D(cin, 3, strides)
        self.bn1 = BatchNormalization(cin)
        self.pointwise = Conv2D(cin, cout, 1)
        self.bn2 = BatchNormalization(cout)

    def forward(self, x):
        x = F.relu(self.bn1(self.depthwise(x)), inplace=True)
        return F.relu(self.bn2(self.pointwise(x)), inplace=True)


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Conv2D(3, 32, 3, strides=2)
        self.stem_bn = BatchNormalization(32)
        self.blocks = nn.Sequential(
            SeparableBlock(32, 32),
            SeparableBlock(32, 64, strides=2),
            SeparableBlock(64, 64),
            SeparableBlock(64, 128, strides=2),
            SeparableBlock(128, 128),
        )
        self.fc = nn.Linear(128, CLASSES)

    def forward(self, x):
        x = F.relu(self.stem_bn(self.stem(x)), inplace=True)
        x = self.blocks(x)
        return self.fc(x.mean(dim=(1, 2)))


def make_tiles(n=3000, size=64, seed=0):
    """Textures with a class-dependent wavelength and tint."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    grid = np.arange(size, dtype=np.float32)
    phase = rng.uniform(0, 6.28, (n, 1)).astype(np.float32)
    wave = np.sin(grid[None] * (0.2 + 0.25 * y[:, None]).astype(np.float32) + phase)
    tex = wave[:, :, None, None] * wave[:, None, :, None] * 60 + 128
    x = np.empty((n, size, size, 3), np.uint8)
    for c in range(3):
        x[..., c:c + 1] = np.clip(tex + 8 * ((y + c) % 3)[:, None, None, None], 0, 255)
    x += rng.integers(0, 20, x.shape, dtype=np.uint8)
    return torch.from_numpy(x), torch.from_numpy(y)


def train(steps=20000):
    torch.manual_seed(0)
    tiles, labels = make_tiles()
    model = MobileNet().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=4e-5)
    for step in range(1, steps + 1):
        idx = torch.randint(len(tiles), (BATCH,))
        x = tiles[idx].float() / 127.5 - 1
        loss = F.cross_entropy(model(x), labels[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print("step %d  loss %.4f" % (step, loss.item()), flush=True)


if __name__ == "__main__":
    train()
