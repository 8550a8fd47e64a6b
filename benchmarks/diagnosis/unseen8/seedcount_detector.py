"""Finds seeds on germination trays: one-stage detector with a bare-bones trainer."""
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset

CACHE = os.path.join(tempfile.gettempdir(), "seedcount_detector")
IMG, STRIDE, MAX_SEEDS = 64, 8, 12


def draw_trays(path, count=3000, seed=3):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:IMG, :IMG].astype(np.float32)
    images = np.empty((count, 1, IMG, IMG), np.uint8)
    boxes = np.zeros((count, MAX_SEEDS, 4), np.float32)
    number = np.zeros(count, np.int64)
    for i in range(count):
        soil = rng.normal(60, 14, (IMG, IMG)).astype(np.float32) + 10 * np.sin(xx / rng.uniform(4, 9))
        number[i] = rng.integers(6, MAX_SEEDS + 1)
        for j in range(number[i]):
            cx, cy = rng.uniform(5, IMG - 5, 2)
            rx, ry = rng.uniform(2.2, 6.5, 2)
            soil += 120 * np.exp(-(((xx - cx) / rx) ** 2 + ((yy - cy) / ry) ** 2) ** 3)
            boxes[i, j] = cx - rx, cy - ry, cx + rx, cy + ry
        images[i, 0] = soil.clip(0, 255)
    np.savez(path, images=images, boxes=boxes, number=number)


class Trays(Dataset):
    def __init__(self, lo, hi):
        path = os.path.join(CACHE, "trays.npz")
        if not os.path.exists(path):
            os.makedirs(CACHE, exist_ok=True)
            draw_trays(path)
        with np.load(path) as z:
            self.images, self.boxes, self.number = (z[k][lo:hi] for k in ("images", "boxes", "number"))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        x = torch.from_numpy(self.images[i]).float().div_(255).sub_(0.35)
        return x, torch.from_numpy(self.boxes[i]), int(self.number[i])


def anchor_boxes():
    c = torch.arange(STRIDE / 2, IMG, STRIDE)
    cy, cx = torch.meshgrid(c, c, indexing="ij")
    out = []
    for w, h in ((6, 6), (9, 9), (12, 7), (7, 12)):
        out.append(torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1))
    return torch.stack(out, 2).reshape(-1, 4)


class SeedNet(nn.Module):
    def __init__(self, n_shapes=4):
        super().__init__()
        layers, ch = [], 1
        for width in (16, 32, 64):
            layers += [nn.Conv2d(ch, width, 3, padding=1, stride=2), nn.BatchNorm2d(width), nn.SiLU()]
            ch = width
        self.trunk = nn.Sequential(*layers, nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.SiLU())
        self.head = nn.Conv2d(64, n_shapes * 5, 1)

    def forward(self, x):
        h = self.head(self.trunk(x))
        return h.permute(0, 2, 3, 1).reshape(x.shape[0], -1, 5)


class DetectionLoss(nn.Module):
    def __init__(self, anchors):
        super().__init__()
        self.register_buffer("anchors", anchors)
        self.register_buffer("area", (anchors[:, 2] - anchors[:, 0]) * (anchors[:, 3] - anchors[:, 1]))

    def encode(self, box, anchor):
        size = anchor[..., 2:] - anchor[..., :2]
        shift = ((box[..., 2:] + box[..., :2]) - (anchor[..., 2:] + anchor[..., :2])) / (2 * size)
        return torch.cat([shift, torch.log((box[..., 2:] - box[..., :2]) / size)], -1)

    def overlap(self, box):
        lt = torch.maximum(box[..., None, :2], self.anchors[:, :2])
        rb = torch.minimum(box[..., None, 2:], self.anchors[:, 2:])
        inter = (rb - lt).clamp(min=0).prod(-1)
        return inter / ((box[..., 2:] - box[..., :2]).prod(-1)[..., None] + self.area - inter)

    def forward(self, out, boxes, number):
        target = torch.zeros(out.shape[:2])
        reg = out.new_zeros(())
        for b in range(out.shape[0]):
            for j in range(int(number[b])):
                iou = self.overlap(boxes[b, j])
                best = int(iou.argmax())
                target[b, best] = 1.0
                goal = self.encode(boxes[b, j], self.anchors[best])
                reg = reg + F.smooth_l1_loss(out[b, best, 1:], goal, reduction="sum")
        reg = reg / number.sum()
        obj = F.binary_cross_entropy_with_logits(out[..., 0], target, pos_weight=torch.tensor(6.0))
        return obj + 0.5 * reg, {"obj": obj.item(), "reg": reg.item()}


class Callback:
    def on_step(self, trainer, logs):
        pass

    def on_epoch(self, trainer):
        pass


class PrintEvery(Callback):
    def __init__(self, n):
        self.n, self.t0 = n, time.time()

    def on_step(self, trainer, logs):
        if trainer.step % self.n == 0:
            text = " ".join(f"{k}={v:.4f}" for k, v in logs.items())
            print(f"step {trainer.step} {text} ({time.time() - self.t0:.0f}s)", flush=True)


class CountError(Callback):
    def __init__(self, data):
        self.x = torch.stack([data[i][0] for i in range(len(data))])
        self.n = torch.as_tensor(data.number)

    @torch.no_grad()
    def on_epoch(self, trainer):
        trainer.model.eval()
        found = (trainer.model(self.x)[..., 0] > 1.0).sum(1)
        print(f"epoch {trainer.epoch}: mean count error {(found - self.n).abs().float().mean():.2f}", flush=True)
        trainer.model.train()


class MiniTrainer:
    def __init__(self, max_epochs, callbacks):
        self.max_epochs, self.callbacks = max_epochs, callbacks
        self.step = self.epoch = 0

    def fit(self, model, criterion, loader, optimizer, scheduler):
        self.model = model
        for self.epoch in range(self.max_epochs):
            for x, boxes, number in loader:
                optimizer.zero_grad()
                loss, logs = criterion(model(x), boxes, number)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 10.0)
                optimizer.step()
                self.step += 1
                for cb in self.callbacks:
                    cb.on_step(self, {"loss": loss.item(), **logs})
            scheduler.step()
            for cb in self.callbacks:
                cb.on_epoch(self)


if __name__ == "__main__":
    torch.manual_seed(7)
    train_set, val_set = Trays(0, 2800), Trays(2800, 3000)
    loader = DataLoader(train_set, batch_size=48, shuffle=True, drop_last=True)
    net = SeedNet()
    optimizer = optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-3)
    scheduler = optim.lr_scheduler.MultiStepLR(optimizer, [20, 32], 0.2)
    trainer = MiniTrainer(60, [PrintEvery(10), CountError(val_set)])
    trainer.fit(net, DetectionLoss(anchor_boxes()), loader, optimizer, scheduler)
