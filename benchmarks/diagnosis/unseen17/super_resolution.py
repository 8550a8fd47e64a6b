"""Super-resolution x2 of microscopy-like textures with a residual channel-attention network."""
import json
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from einops.layers.torch import Rearrange
from PIL import Image
from scipy import ndimage
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from torch.utils.data import DataLoader, Dataset

FOLDER = Path(tempfile.gettempdir()) / "super_resolution_x2"

opt = SimpleNamespace(
    scale=2, patch=96, features=32, blocks=3, batch_size=16, lr=4e-4, iterations=6000, print_freq=50,
    val_freq=500, ema=0.999, images=120, image_size=384, seed=7,
)


def synthesize(folder):
    if (folder / "done").exists():
        return
    for part in ("hr", "lr"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(opt.seed)
    for i in range(opt.images):
        size = opt.image_size
        image = np.zeros((size, size, 3), np.float32)
        for sigma in (1.2, 3, 8):
            noise = ndimage.gaussian_filter(rng.normal(size=(size, size)).astype(np.float32), sigma)
            image += (noise / noise.std())[..., None] * rng.uniform(0.1, 1, 3).astype(np.float32)
        image = np.where(image > 0.4, image + 1.2, image)
        image = ((image - image.min()) / (image.max() - image.min()) * 255).astype(np.uint8)
        hr = Image.fromarray(image)
        hr.save(folder / "hr" / f"{i:04d}.png")
        hr.resize((size // opt.scale, size // opt.scale), Image.BICUBIC).save(folder / "lr" / f"{i:04d}.png")
    (folder / "done").touch()


class PairedImages(Dataset):
    """Pairs of low and high resolution images; all of them fit into memory, so they are decoded once."""

    def __init__(self, names, repeat=1, crop=True):
        self.repeat, self.crop = repeat, crop
        self.pairs = [(np.array(Image.open(FOLDER / "lr" / n)), np.array(Image.open(FOLDER / "hr" / n))) for n in names]

    def __len__(self):
        return len(self.pairs) * self.repeat

    def __getitem__(self, index):
        lr, hr = self.pairs[index % len(self.pairs)]
        if self.crop:
            side, s = opt.patch // opt.scale, opt.scale
            y, x = np.random.randint(lr.shape[0] - side), np.random.randint(lr.shape[1] - side)
            lr, hr = lr[y:y + side, x:x + side], hr[y * s:(y + side) * s, x * s:(x + side) * s]
            if np.random.rand() < 0.5:
                lr, hr = lr[:, ::-1], hr[:, ::-1]
            if np.random.rand() < 0.5:
                lr, hr = lr.transpose(1, 0, 2), hr.transpose(1, 0, 2)
        return self.to_tensor(lr), self.to_tensor(hr)

    @staticmethod
    def to_tensor(image):
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))).float() / 255


class ChannelAttention(nn.Module):
    def __init__(self, features, reduction=8):
        super().__init__()
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(features, features // reduction, 1), nn.ReLU(),
                                  nn.Conv2d(features // reduction, features, 1), nn.Sigmoid())

    def forward(self, x):
        return x * self.gate(x)


class ResidualBlock(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(features, features, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(features, features, 3, padding=1), ChannelAttention(features))

    def forward(self, x):
        return x + self.body(x)


class SRNet(nn.Module):
    def __init__(self):
        super().__init__()
        f, s = opt.features, opt.scale
        self.head = nn.Conv2d(3, f, 3, padding=1)
        self.body = nn.Sequential(*[ResidualBlock(f) for _ in range(opt.blocks)], nn.Conv2d(f, f, 3, padding=1))
        self.tail = nn.Sequential(nn.Conv2d(f, 3 * s * s, 3, padding=1), Rearrange("b (c r1 r2) h w -> b c (h r1) (w r2)", r1=s, r2=s))

    def forward(self, x):
        features = self.head(x)
        base = F.interpolate(x, scale_factor=opt.scale, mode="bilinear", align_corners=False)
        return base + self.tail(features + self.body(features))


class EMA:
    def __init__(self, model, decay):
        self.decay = decay
        self.shadow = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for name, value in model.state_dict().items():
            self.shadow[name].lerp_(value, 1 - self.decay)


def image_metrics(output, target):
    """Mean PSNR and SSIM of a batch, with the reference implementations of scikit-image."""
    output = output.detach().clamp(0, 1).permute(0, 2, 3, 1).cpu().numpy()
    target = target.permute(0, 2, 3, 1).cpu().numpy()
    psnr = [peak_signal_noise_ratio(t, o, data_range=1.0) for o, t in zip(output, target)]
    ssim = [structural_similarity(t, o, channel_axis=-1, data_range=1.0) for o, t in zip(output, target)]
    return float(np.mean(psnr)), float(np.mean(ssim))


class MetricTracker:
    def __init__(self):
        self.values = {}

    def update(self, **values):
        for key, value in values.items():
            self.values.setdefault(key, []).append(value)

    def pop(self):
        means = {key: round(float(np.mean(v)), 4) for key, v in self.values.items()}
        self.values = {}
        return means


class JsonLogger:
    def __init__(self, path):
        self.file, self.started = open(path, "w"), time.time()

    def write(self, **entry):
        entry["elapsed"] = round(time.time() - self.started, 1)
        self.file.write(json.dumps(entry) + "\n")
        self.file.flush()
        print(entry, flush=True)


class SRTrainer:
    def __init__(self):
        names = sorted(p.name for p in (FOLDER / "hr").glob("*.png"))
        self.train_loader = DataLoader(PairedImages(names[:-4], repeat=20), opt.batch_size, shuffle=True, drop_last=True)
        self.val_loader = DataLoader(PairedImages(names[-4:], crop=False), 1)
        self.model = SRNet().to(memory_format=torch.channels_last)
        self.ema = EMA(self.model, opt.ema)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=opt.lr, betas=(0.9, 0.99))
        self.scheduler = torch.optim.lr_scheduler.MultiStepLR(self.optimizer, [opt.iterations // 2, opt.iterations * 3 // 4], 0.5)
        self.tracker, self.logger = MetricTracker(), JsonLogger(FOLDER / "train.jsonl")
        self.iteration = 0

    def optimize_parameters(self, lr, hr):
        output = self.model(lr)
        loss = F.l1_loss(output, hr)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.ema.update(self.model)
        psnr, ssim = image_metrics(output, hr)
        self.tracker.update(loss=loss.item(), psnr=psnr, ssim=ssim)

    @torch.no_grad()
    def validate(self):
        backup = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.ema.shadow)
        scores = np.mean([image_metrics(self.model(lr), hr) for lr, hr in self.val_loader], axis=0)
        torch.save(self.model.state_dict(), FOLDER / "latest.pth")
        self.model.load_state_dict(backup)
        self.logger.write(val_psnr=round(scores[0], 3), val_ssim=round(scores[1], 4))

    def train(self):
        while self.iteration < opt.iterations:
            for lr, hr in self.train_loader:
                self.iteration += 1
                self.optimize_parameters(lr, hr)
                if self.iteration % opt.print_freq == 0:
                    self.logger.write(iteration=self.iteration, **self.tracker.pop())
                if self.iteration % opt.val_freq == 0:
                    self.validate()
                if self.iteration >= opt.iterations:
                    break


if __name__ == "__main__":
    torch.manual_seed(opt.seed)
    np.random.seed(opt.seed)
    synthesize(FOLDER)
    SRTrainer().train()
