"""Optical flow between two frames with a small pyramid network (feature warping and local cost volumes)."""
import copy
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset, Sampler

DATA = Path(tempfile.gettempdir()) / "optical_flow_scenes"


class Config(dict):
    __getattr__ = dict.__getitem__


cfg = Config(scenes=240, size=160, crop=96, channels=(12, 24, 32), radius=3, batch_size=4, lr=3e-4, max_steps=6000,
             gamma=0.7, ema=0.999, clip=1.0, print_every=20, eval_every=400, seed=1)


def make_scenes():
    if (DATA / f"{cfg.scenes - 1:04d}.npz").exists():
        return
    DATA.mkdir(exist_ok=True)
    rng = np.random.default_rng(cfg.seed)
    n = cfg.size
    grid = np.stack(np.mgrid[:n, :n]).astype(np.float32)
    for i in range(cfg.scenes):
        texture = sum(ndimage.gaussian_filter(rng.standard_normal((n, n, 3)), (s, s, 0)) * s for s in (1, 2, 5))
        texture = (texture - texture.min()) / (texture.max() - texture.min())
        coarse = rng.normal(0, 4, (2, 5, 5))
        flow = np.stack([ndimage.zoom(c, n / 5, order=3) for c in coarse]).astype(np.float32)
        second = np.stack([ndimage.map_coordinates(texture[..., c], grid - flow[::-1], order=1, mode="reflect") for c in range(3)], -1)
        np.savez(DATA / f"{i:04d}.npz", frame1=(texture * 255).astype(np.uint8), frame2=(second * 255).astype(np.uint8),
                 flow=flow.astype(np.float16))


class FlowScenes(Dataset):
    def __init__(self, files, augment):
        self.files, self.augment = files, augment

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with np.load(self.files[index]) as scene:
            frames = np.stack([scene["frame1"], scene["frame2"]]).astype(np.float32) / 255
            flow = scene["flow"].astype(np.float32)
        edge = cfg.size - cfg.crop
        y, x = (random.randint(0, edge), random.randint(0, edge)) if self.augment else (edge // 2, edge // 2)
        frames, flow = frames[:, y:y + cfg.crop, x:x + cfg.crop], flow[:, y:y + cfg.crop, x:x + cfg.crop]
        if self.augment:
            frames = np.clip(frames * random.uniform(0.8, 1.2) + random.uniform(-0.1, 0.1), 0, 1)
            if random.random() < 0.5:
                frames, flow = frames[:, :, ::-1], flow[:, :, ::-1] * np.array([-1, 1], np.float32)[:, None, None]
        frames = torch.from_numpy(np.ascontiguousarray(frames.transpose(0, 3, 1, 2)))
        return frames[0], frames[1], torch.from_numpy(np.ascontiguousarray(flow))


class EndlessSampler(Sampler):
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        while True:
            yield from torch.randperm(self.length).tolist()


def conv(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1), nn.LeakyReLU(0.1))


def warp(features, flow):
    b, _, h, w = features.shape
    ys, xs = torch.meshgrid(torch.arange(h, device=flow.device), torch.arange(w, device=flow.device), indexing="ij")
    x = 2 * (xs + flow[:, 0]) / (w - 1) - 1
    y = 2 * (ys + flow[:, 1]) / (h - 1) - 1
    return F.grid_sample(features, torch.stack([x, y], -1), align_corners=True, padding_mode="border")


def cost_volume(first, second, radius):
    _, _, h, w = first.shape
    padded = F.pad(second, [radius] * 4)
    costs = []
    for dy in range(2 * radius + 1):
        for dx in range(2 * radius + 1):
            costs.append((first * padded[:, :, dy:dy + h, dx:dx + w]).mean(1))
    return F.leaky_relu(torch.stack(costs, 1), 0.1)


class Decoder(nn.Module):
    def __init__(self, channels, radius):
        super().__init__()
        costs = (2 * radius + 1) ** 2
        self.layers = nn.Sequential(conv(costs + channels + 2, 64), conv(64, 48), conv(48, 32), nn.Conv2d(32, 2, 3, padding=1))

    def forward(self, costs, features, flow):
        return flow + self.layers(torch.cat([costs, features, flow], 1))


class PyramidFlow(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (3, *cfg.channels)
        self.encoder = nn.ModuleList(nn.Sequential(conv(a, b, 2), conv(b, b), conv(b, b)) for a, b in zip(widths, widths[1:]))
        self.decoders = nn.ModuleList(Decoder(c, cfg.radius) for c in cfg.channels)

    def pyramid(self, image):
        levels = []
        for stage in self.encoder:
            image = stage(image)
            levels.append(image)
        return levels

    def forward(self, frame1, frame2):
        first, second = self.pyramid(frame1), self.pyramid(frame2)
        flows, flow = [], torch.zeros_like(first[-1][:, :2])
        for level in reversed(range(len(first))):
            if flows:
                flow = 2 * F.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=False)
            costs = cost_volume(first[level], warp(second[level], flow), cfg.radius)
            flow = self.decoders[level](costs, first[level], flow)
            flows.append(flow)
        return flows


def to_full(flow, size):
    factor = size / flow.shape[-1]
    return factor * F.interpolate(flow, size=(size, size), mode="bilinear", align_corners=False)


class AverageMeter:
    total, count = 0.0, 0

    def add(self, value):
        self.total, self.count = self.total + value, self.count + 1

    @property
    def mean(self):
        return self.total / max(self.count, 1)


class FlowTrainer:
    def __init__(self):
        files = sorted(DATA.glob("*.npz"))
        train, test = FlowScenes(files[:-24], True), FlowScenes(files[-24:], False)
        self.loader = DataLoader(train, cfg.batch_size, sampler=EndlessSampler(len(train)))
        self.test_loader = DataLoader(test, cfg.batch_size)
        self.model = PyramidFlow()
        self.ema_model = copy.deepcopy(self.model).requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), cfg.lr, weight_decay=1e-4)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, cfg.lr, cfg.max_steps + 1, pct_start=0.05)
        self.meters = {"loss": AverageMeter(), "epe": AverageMeter()}

    def sequence_loss(self, flows, target):
        losses = [(to_full(flow, cfg.crop) - target).abs().mean() for flow in flows]
        return sum(cfg.gamma ** (len(losses) - 1 - i) * loss for i, loss in enumerate(losses))

    def update_ema(self):
        for average, parameter in zip(self.ema_model.parameters(), self.model.parameters()):
            average.mul_(cfg.ema).add_(parameter.detach(), alpha=1 - cfg.ema)

    @torch.no_grad()
    def evaluate(self):
        meter = AverageMeter()
        for frame1, frame2, target in self.test_loader:
            flow = to_full(self.ema_model(frame1, frame2)[-1], cfg.crop)
            meter.add((flow - target).norm(dim=1).mean().item())
        return meter.mean

    def run(self):
        started = time.time()
        for step, (frame1, frame2, target) in enumerate(self.loader, 1):
            flows = self.model(frame1, frame2)
            loss = self.sequence_loss(flows, target)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), cfg.clip)
            self.optimizer.step()
            self.scheduler.step()
            self.update_ema()
            self.meters["loss"].add(loss.item())
            self.meters["epe"].add((to_full(flows[-1].detach(), cfg.crop) - target).norm(dim=1).mean().item())
            if step % cfg.print_every == 0:
                print(f"step {step} " + " ".join(f"{k} {m.mean:.3f}" for k, m in self.meters.items()) + f" {time.time() - started:.0f}s", flush=True)
                self.meters = {name: AverageMeter() for name in self.meters}
            if step % cfg.eval_every == 0:
                print(f"step {step} test epe {self.evaluate():.3f}", flush=True)
                torch.save(self.ema_model.state_dict(), DATA / "ema.pt")
            if step >= cfg.max_steps:
                break


if __name__ == "__main__":
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    make_scenes()
    FlowTrainer().run()
