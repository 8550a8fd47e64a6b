"""Neural occupancy map of a container yard from lidar scans.

Scans (ranges of a 32 x 360 spinning lidar and the pose of the vehicle) are stored one npy per scan with a poses.csv. The map is a
multi-resolution hashed feature grid followed by a small MLP which says whether a point is occupied.
"""
import csv
import logging
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

ROOT = os.path.join(tempfile.gettempdir(), "yard_occupancy")
EXTENT = 40.0
MAX_RANGE = 35.0
log = logging.getLogger("yard")


def beam_directions():
    elevation = np.radians(np.linspace(-22, 12, 32))[:, None]
    azimuth = np.radians(np.arange(360))[None, :]
    return np.stack([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth),
                     np.sin(elevation) * np.ones_like(azimuth)], -1).reshape(-1, 3)


def cast(origin, dirs, boxes):
    safe = np.where(np.abs(dirs) < 1e-6, 1e-6, dirs)
    best = np.where(safe[:, 2] < 0, -origin[2] / safe[:, 2], MAX_RANGE)
    for low, high in boxes:
        t0, t1 = (low - origin) / safe, (high - origin) / safe
        near, far = np.minimum(t0, t1).max(1), np.maximum(t0, t1).min(1)
        best = np.where((near < far) & (near > 0) & (near < best), near, best)
    return np.minimum(best, MAX_RANGE)


def record_scans(count=120):
    os.makedirs(os.path.join(ROOT, "scans"), exist_ok=True)
    poses_file = os.path.join(ROOT, "poses.csv")
    if os.path.exists(poses_file):
        return
    rng = np.random.default_rng(5)
    boxes = []
    for _ in range(40):
        corner = np.append(rng.uniform(-34, 30, 2), 0.0)
        size = np.array([6.1, 2.4, 2.6]) if rng.random() < 0.5 else np.array([2.4, 6.1, 2.6])
        size[2] *= rng.integers(1, 4)
        boxes.append((corner, corner + size))
    rows, dirs = [], beam_directions()
    for i in range(count):
        origin = np.append(rng.uniform(-32, 32, 2), 1.9)
        yaw = rng.uniform(0, 2 * np.pi)
        c, s = np.cos(yaw), np.sin(yaw)
        rotated = dirs @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
        ranges = cast(origin, rotated, boxes) + rng.normal(0, 0.02, len(dirs))
        np.save(os.path.join(ROOT, "scans", f"{i:05d}.npy"), ranges.astype(np.float32))
        rows.append([f"{i:05d}.npy", *np.round(origin, 4), round(yaw, 5)])
    with open(poses_file, "w", newline="") as f:
        csv.writer(f).writerows([["scan", "x", "y", "z", "yaw"]] + rows)


def load_rays():
    dirs = beam_directions().astype(np.float32)
    origins, rays, ranges = [], [], []
    for row in csv.DictReader(open(os.path.join(ROOT, "poses.csv"))):
        r = np.load(os.path.join(ROOT, "scans", row["scan"]))
        c, s = np.cos(float(row["yaw"])), np.sin(float(row["yaw"]))
        rays.append(dirs @ np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]], dtype=np.float32))
        origins.append(np.tile(np.array([row["x"], row["y"], row["z"]], dtype=np.float32), (len(dirs), 1)))
        ranges.append(r)
    return [torch.from_numpy(np.concatenate(a)) for a in (origins, rays, ranges)]


class HashedGrid(nn.Module):
    PRIMES = (1, 2654435761, 805459861)

    def __init__(self, levels=4, log2_size=20, features=4, coarsest=16, finest=320):
        super().__init__()
        growth = (finest / coarsest) ** (1 / (levels - 1))
        self.resolutions = [int(coarsest * growth ** k) for k in range(levels)]
        self.size = 2 ** log2_size
        self.tables = nn.ModuleList(nn.Embedding(self.size, features) for _ in range(levels))
        for table in self.tables:
            nn.init.uniform_(table.weight, -1e-3, 1e-3)
        corners = torch.tensor([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)])
        self.register_buffer("corners", corners)

    def forward(self, xyz):
        unit = (xyz / EXTENT + 1) / 2
        found = []
        for resolution, table in zip(self.resolutions, self.tables):
            scaled = unit * resolution
            base = scaled.floor()
            frac = (scaled - base).unsqueeze(1)
            cell = base.long().unsqueeze(1) + self.corners
            key = cell[..., 0] * self.PRIMES[0] ^ cell[..., 1] * self.PRIMES[1] ^ cell[..., 2] * self.PRIMES[2]
            weight = torch.where(self.corners.bool(), frac, 1 - frac).prod(-1, keepdim=True)
            found.append((table(key % self.size) * weight).sum(1))
        return torch.cat(found, -1)


class OccupancyField(nn.Module):
    def __init__(self, levels=4, features=4):
        super().__init__()
        self.grid = HashedGrid(levels=levels, features=features)
        self.decoder = nn.Sequential(nn.Linear(levels * features, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, xyz):
        return self.decoder(self.grid(xyz)).squeeze(-1)


def sample_points(origins, rays, ranges, count):
    """For each chosen beam: one point on the surface (if it returned) and two in the free space before it."""
    pick = torch.randint(len(ranges), (count,))
    o, d, r = origins[pick], rays[pick], ranges[pick].unsqueeze(1)
    surface = o + d * (r + 0.1 * torch.rand_like(r))
    free = [o + d * r * torch.rand_like(r), o + d * (r - 0.2 - 0.8 * torch.rand_like(r)).clamp(min=0.1)]
    returned = ranges[pick] < MAX_RANGE - 0.5
    xyz = torch.cat([surface[returned]] + free)
    occupied = torch.cat([torch.ones(int(returned.sum())), torch.zeros(2 * count)])
    inside = (xyz.abs() < EXTENT).all(1)
    return xyz[inside], occupied[inside]


@torch.no_grad()
def accuracy(field, xyz, occupied):
    said = field(xyz) > 0
    hit = said == occupied.bool()
    return hit[occupied > 0].float().mean().item(), hit[occupied == 0].float().mean().item()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(0)
    record_scans()
    origins, rays, ranges = load_rays()
    held_out = 10 * 32 * 360
    test_xyz, test_occupied = sample_points(origins[-held_out:], rays[-held_out:], ranges[-held_out:], 4000)
    origins, rays, ranges = origins[:-held_out], rays[:-held_out], ranges[:-held_out]
    log.info("%d beams for training", len(ranges))

    field = OccupancyField()
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-3, betas=(0.9, 0.99), eps=1e-12)
    started = time.time()
    for step in range(1, 12001):
        xyz, occupied = sample_points(origins, rays, ranges, 1024)
        loss = F.binary_cross_entropy_with_logits(field(xyz), occupied)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            log.info("step %d loss %.4f %.2f steps/s", step, loss.item(), step / (time.time() - started))
        if step % 500 == 0:
            on, off = accuracy(field, test_xyz, test_occupied)
            log.info("held-out scans: occupied %.3f free %.3f", on, off)
        if step % 3000 == 0:
            torch.save(field.state_dict(), os.path.join(ROOT, "field.pt"))


if __name__ == "__main__":
    main()
