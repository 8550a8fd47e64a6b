"""Small single-shot detector for pallets, forklifts and people seen by a ceiling camera (grey, 160 x 160).

Frames are PNG, annotations one JSON line per frame: boxes as x1 y1 x2 y2 and class numbers.
"""
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFilter
from torch.utils.data import DataLoader, Dataset

ROOT = os.path.join(tempfile.gettempdir(), "pallet_detector")
CLASSES = ["pallet", "forklift", "person"]
SIDE, CELL = 160, 8
ANCHOR_SIZES = [(12, 12), (26, 20), (20, 36)]


def render_frames(count=1600):
    listing = os.path.join(ROOT, "annotations.jsonl")
    if os.path.exists(listing):
        return listing
    os.makedirs(os.path.join(ROOT, "frames"), exist_ok=True)
    rng = np.random.default_rng(21)
    lines = []
    for i in range(count):
        floor = rng.normal(rng.uniform(70, 130), 9, (SIDE, SIDE)).clip(0, 255).astype(np.uint8)
        image = Image.fromarray(floor)
        draw = ImageDraw.Draw(image)
        boxes, labels = [], []
        for _ in range(rng.integers(2, 9)):
            kind = int(rng.integers(3))
            w, h = [(24, 20), (20, 36), (11, 12)][kind]
            w, h = w * rng.uniform(0.8, 1.25), h * rng.uniform(0.8, 1.25)
            x, y = rng.uniform(0, SIDE - w), rng.uniform(0, SIDE - h)
            shade = int(rng.integers(140, 230))
            if kind == 0:
                for k in range(4):
                    draw.rectangle([x, y + k * h / 4, x + w, y + k * h / 4 + h / 7], fill=shade)
            elif kind == 1:
                draw.rectangle([x + w * 0.1, y + h * 0.3, x + w * 0.9, y + h], fill=shade)
                draw.line([x + w * 0.3, y, x + w * 0.3, y + h * 0.3], fill=30, width=2)
                draw.line([x + w * 0.7, y, x + w * 0.7, y + h * 0.3], fill=30, width=2)
            else:
                draw.ellipse([x, y, x + w, y + h], fill=shade)
                draw.ellipse([x + w * 0.3, y + h * 0.3, x + w * 0.7, y + h * 0.7], fill=20)
            boxes.append([round(float(v), 1) for v in (x, y, x + w, y + h)])
            labels.append(kind)
        name = f"{i:05d}.png"
        image.filter(ImageFilter.GaussianBlur(0.7)).save(os.path.join(ROOT, "frames", name))
        lines.append(json.dumps({"frame": name, "boxes": boxes, "labels": labels}))
    with open(listing, "w") as f:
        f.write("\n".join(lines))
    return listing


class Frames(Dataset):
    def __init__(self, listing, train):
        rows = [json.loads(line) for line in open(listing)]
        self.rows = rows[:-160] if train else rows[-160:]
        self.train = train

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        image = np.asarray(Image.open(os.path.join(ROOT, "frames", row["frame"])), dtype=np.float32) / 255
        boxes = torch.tensor(row["boxes"], dtype=torch.float32)
        if self.train and np.random.rand() < 0.5:
            image = image[:, ::-1].copy()
            boxes[:, [0, 2]] = SIDE - boxes[:, [2, 0]]
        return torch.from_numpy(image)[None], boxes, torch.tensor(row["labels"])


def collate(items):
    images, boxes, labels = zip(*items)
    return torch.stack(images), boxes, labels


def make_anchors():
    centres = (torch.arange(SIDE // CELL) + 0.5) * CELL
    cy, cx = torch.meshgrid(centres, centres, indexing="ij")
    return torch.cat([torch.stack([cx, cy, torch.full_like(cx, w), torch.full_like(cx, h)], -1).view(-1, 4)
                      for w, h in ANCHOR_SIZES])


def to_corners(b):
    return torch.cat([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], -1)


def iou(a, b):
    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (high - low).clamp(min=0).prod(-1)
    area_a, area_b = (a[:, 2:] - a[:, :2]).prod(-1), (b[:, 2:] - b[:, :2]).prod(-1)
    return inter / (area_a[:, None] + area_b[None] - inter)


def nms(boxes, scores, limit=0.45):
    order = scores.argsort(descending=True)
    keep = []
    while len(order) > 0:
        first, rest = order[0], order[1:]
        keep.append(first)
        overlap = iou(boxes[first][None], boxes[rest])[0]
        order = rest[overlap <= limit]
    return torch.stack(keep)


class Detector(nn.Module):
    def __init__(self, anchors):
        super().__init__()
        layers, cin = [], 1
        for cout, stride in [(16, 2), (32, 2), (64, 2), (64, 1), (96, 1)]:
            layers += [nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU()]
            cin = cout
        self.body = nn.Sequential(*layers)
        self.out = nn.Conv2d(cin, len(ANCHOR_SIZES) * (4 + len(CLASSES)), 1)
        self.register_buffer("anchors", anchors)

    def forward(self, x):
        y = self.out(self.body(x))
        y = y.view(len(x), len(ANCHOR_SIZES), 4 + len(CLASSES), -1).permute(0, 1, 3, 2).reshape(len(x), -1, 4 + len(CLASSES))
        return y[..., :4], y[..., 4:]

    def decode(self, offsets):
        a = self.anchors
        return to_corners(torch.cat([a[:, :2] + offsets[..., :2] * a[:, 2:], a[:, 2:] * offsets[..., 2:].clamp(max=3).exp()], -1))


def match(anchors, boxes, labels):
    overlap = iou(to_corners(anchors), boxes)
    value, which = overlap.max(1)
    best = overlap.argmax(0)
    which[best], value[best] = torch.arange(len(boxes)), 1.0
    positive, ignored = value >= 0.5, (value >= 0.4) & (value < 0.5)
    b = boxes[which]
    centre, size = (b[:, :2] + b[:, 2:]) / 2, b[:, 2:] - b[:, :2]
    offsets = torch.cat([(centre - anchors[:, :2]) / anchors[:, 2:], (size / anchors[:, 2:]).log()], 1)
    classes = F.one_hot(labels[which], len(CLASSES)).float() * positive[:, None]
    return positive, ignored, offsets, classes


def detection_loss(model, images, boxes, labels):
    offsets, logits = model(images)
    positive, ignored, goal, classes = [torch.stack(t) for t in zip(*[match(model.anchors, b, l) for b, l in zip(boxes, labels)])]
    prob = torch.sigmoid(logits)
    focal = F.binary_cross_entropy_with_logits(logits, classes, reduction="none") * (classes - prob).abs() ** 2
    count = positive.sum().clamp(min=1)
    return focal[~ignored].sum() / count + F.smooth_l1_loss(offsets[positive], goal[positive], reduction="sum") / count


@torch.no_grad()
def average_precision(model, loader):
    model.eval()
    found, total = [[] for _ in CLASSES], [0] * len(CLASSES)
    for images, boxes, labels in loader:
        offsets, logits = model(images)
        decoded, prob = model.decode(offsets), torch.sigmoid(logits)
        for k in range(len(images)):
            for c in range(len(CLASSES)):
                truth = boxes[k][labels[k] == c]
                total[c] += len(truth)
                chosen = prob[k, :, c] > 0.01
                if not chosen.any():
                    continue
                cand, score = decoded[k][chosen], prob[k, chosen, c]
                keep = nms(cand, score)
                overlap = iou(cand[keep], truth) if len(truth) else torch.zeros(len(keep), 1)
                used = set()
                for s, row in zip(score[keep].tolist(), overlap.tolist()):
                    j = int(np.argmax(row))
                    good = row[j] >= 0.5 and j not in used
                    if good:
                        used.add(j)
                    found[c].append((s, good))
    result = []
    for c in range(len(CLASSES)):
        good = np.array([g for _, g in sorted(found[c], reverse=True)], dtype=float)
        recall, precision = np.cumsum(good) / total[c], np.cumsum(good) / np.arange(1, len(good) + 1)
        result.append(float(np.sum(np.diff(recall, prepend=0) * precision)))
    model.train()
    return result


def main():
    torch.manual_seed(0)
    listing = render_frames()
    train_loader = DataLoader(Frames(listing, True), batch_size=16, shuffle=True, collate_fn=collate, drop_last=True)
    val_loader = DataLoader(Frames(listing, False), batch_size=16, collate_fn=collate)
    model = Detector(make_anchors())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=1e-4, nesterov=True)
    step, started = 0, time.time()
    for epoch in range(150):
        for images, boxes, labels in train_loader:
            loss = detection_loss(model, images, boxes, labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.3f} {step / (time.time() - started):.2f} steps/s", flush=True)
        ap = average_precision(model, val_loader)
        print(f"epoch {epoch} AP " + " ".join(f"{n}={v:.3f}" for n, v in zip(CLASSES, ap)), flush=True)
        torch.save(model.state_dict(), os.path.join(ROOT, "last.pt"))


if __name__ == "__main__":
    main()
