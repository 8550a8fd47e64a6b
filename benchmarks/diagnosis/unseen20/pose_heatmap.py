"""Single-person pose estimation by heatmap regression (a small "simple baseline").

COCO-like JSON annotations, JPEG images of drawn stick figures; metric PCK at 0.05.
"""
import json
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import functional as TF

JOINTS = ("head neck l_elbow l_hand r_elbow r_hand hip l_knee l_foot r_knee r_foot").split()
BONES = [(0, 1), (1, 2), (2, 3), (1, 4), (4, 5), (1, 6), (6, 7), (7, 8), (6, 9), (9, 10)]
FLIP = [0, 1, 4, 5, 2, 3, 6, 9, 10, 7, 8]
IMAGE_SIZE, HEATMAP_SIZE = 128, 32
BATCH_SIZE, EPOCHS = 16, 60


def sample_figure(rng, size):
    s = rng.uniform(0.6, 1.0) * size / 8
    limb = lambda p, angle, length: p + s * length * np.array([np.cos(angle), np.sin(angle)])
    neck = rng.uniform(0.38, 0.62, 2) * size - [0, 0.15 * size]
    lean = np.pi / 2 + rng.normal(0, 0.15)
    joints = [limb(neck, lean + np.pi, 1.0), neck]
    for side in (1, -1):
        a = lean - side * rng.uniform(0.2, 2.2)
        elbow = limb(neck, a, 1.3)
        joints += [elbow, limb(elbow, a + rng.normal(0, 0.8), 1.2)]
    joints.append(hip := limb(neck, lean, 2.2))
    for side in (1, -1):
        a = lean - side * rng.uniform(0.05, 0.7)
        knee = limb(hip, a, 1.5)
        joints += [knee, limb(knee, a + rng.normal(0, 0.4), 1.5)]
    return np.clip(joints, 2, size - 3)


def make_dataset(root, n, seed, size=160):
    rng, records = np.random.default_rng(seed), []
    os.makedirs(f"{root}/images", exist_ok=True)
    for i in range(n):
        noise = rng.integers(0, 160, (8, 8, 3), dtype=np.uint8)
        img = Image.fromarray(noise).resize((size, size))
        draw = ImageDraw.Draw(img)
        for *line, r, g, b in rng.integers(0, size, (12, 7)).tolist():
            draw.line(line, fill=(r, g, b), width=2)
        joints = sample_figure(rng, size)
        skin = tuple(rng.integers(120, 255, 3).tolist())
        for a, b in BONES:
            draw.line([*joints[a], *joints[b]], fill=skin, width=5)
        draw.ellipse([*(joints[0] - 8), *(joints[0] + 8)], fill=skin)
        img.save(f"{root}/images/{i:06d}.jpg")
        records.append({"file_name": f"{i:06d}.jpg", "keypoints": joints.tolist()})
    with open(f"{root}/person_keypoints.json", "w") as f:
        json.dump({"joints": JOINTS, "annotations": records}, f)


def gaussian_heatmaps(joints, size, sigma=1.5):
    yy, xx = np.mgrid[0:size, 0:size]
    maps = np.zeros((len(joints), size, size), np.float32)
    for j, (x, y) in enumerate(joints):
        maps[j] = np.exp(-((xx - x) ** 2 + (yy - y) ** 2) / (2 * sigma ** 2))
    return maps


class PoseDataset(Dataset):
    def __init__(self, root, train):
        self.root, self.train = root, train
        self.annotations = json.load(open(f"{root}/person_keypoints.json"))["annotations"]

    def __len__(self):
        return len(self.annotations)

    def __getitem__(self, i):
        ann = self.annotations[i]
        img = Image.open(f"{self.root}/images/{ann['file_name']}").convert("RGB")
        joints = np.array(ann["keypoints"]) * IMAGE_SIZE / img.width
        img = img.resize((IMAGE_SIZE, IMAGE_SIZE), Image.BILINEAR)
        if self.train:
            if np.random.rand() < 0.5:
                img, joints = TF.hflip(img), joints[FLIP]
                joints[:, 0] = IMAGE_SIZE - 1 - joints[:, 0]
            angle = np.random.uniform(-25, 25)
            img = TF.rotate(img, angle, Image.BILINEAR)
            c, s = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
            centre = (IMAGE_SIZE - 1) / 2
            joints = (joints - centre) @ np.array([[c, -s], [s, c]]) + centre
            img = TF.adjust_brightness(img, np.random.uniform(0.7, 1.3))
        x = TF.normalize(TF.to_tensor(img), [0.5] * 3, [0.25] * 3)
        target = gaussian_heatmaps(joints * HEATMAP_SIZE / IMAGE_SIZE, HEATMAP_SIZE)
        return x, torch.from_numpy(target), torch.tensor(joints, dtype=torch.float32)


class ResBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(c_in, c_out, 3, stride, 1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(),
            nn.Conv2d(c_out, c_out, 3, 1, 1, bias=False), nn.BatchNorm2d(c_out))
        self.skip = nn.Conv2d(c_in, c_out, 1, stride)

    def forward(self, x):
        return torch.relu(self.body(x) + self.skip(x))


class PoseNet(nn.Module):
    def __init__(self, n_joints):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 24, 5, 2, 2), nn.BatchNorm2d(24), nn.ReLU())
        self.stages = nn.Sequential(
            ResBlock(24, 48, 2), ResBlock(48, 96, 2), ResBlock(96, 128, 2), ResBlock(128, 128, 1))
        self.deconv = nn.Sequential(
            nn.ConvTranspose2d(128, 96, 4, 2, 1), nn.BatchNorm2d(96), nn.ReLU(),
            nn.ConvTranspose2d(96, 96, 4, 2, 1), nn.BatchNorm2d(96), nn.ReLU(),
            nn.Conv2d(96, n_joints, 1))

    def forward(self, x):
        return self.deconv(self.stages(self.stem(x)))


@torch.no_grad()
def pck(heatmaps, joints, threshold=0.05):
    flat = heatmaps.flatten(2).argmax(-1)
    pred = torch.stack([flat % HEATMAP_SIZE, flat // HEATMAP_SIZE], -1)
    dist = (pred * IMAGE_SIZE / HEATMAP_SIZE - joints).norm(dim=-1)
    return (dist < threshold * IMAGE_SIZE).float().mean().item()


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    make_dataset("pose/train", 1600, seed=0)
    make_dataset("pose/val", 160, seed=1)
    train_loader = DataLoader(PoseDataset("pose/train", True), BATCH_SIZE, shuffle=True)
    val_loader = DataLoader(PoseDataset("pose/val", False), BATCH_SIZE)
    model = PoseNet(len(JOINTS))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [40, 52])
    for epoch in range(EPOCHS):
        model.train()
        for step, (x, target, joints) in enumerate(train_loader):
            output = model(x)
            loss = 100 * F.mse_loss(output, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"[{epoch}:{step}] loss {loss:.4f} pck {pck(output, joints):.3f}", flush=True)
        scheduler.step()
        model.eval()
        with torch.no_grad():
            scores = [pck(model(x), joints) for x, _, joints in val_loader]
        print(f"epoch {epoch} val PCK {np.mean(scores):.4f}", flush=True)


if __name__ == "__main__":
    main()
