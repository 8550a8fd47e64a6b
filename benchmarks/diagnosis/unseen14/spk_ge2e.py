"""Speaker verification with the GE2E loss: N speakers x M crops per batch."""
import argparse
import json
import logging
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Sampler

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("spk")

N_MELS = 40
UTT_FRAMES = 120
CROP = 50


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default=os.path.join(tempfile.gettempdir(), "spk_ge2e"))
    p.add_argument("--speakers", type=int, default=2000)
    p.add_argument("--utts", type=int, default=4)
    p.add_argument("--speakers-per-batch", type=int, default=32)
    p.add_argument("--crops-per-speaker", type=int, default=2)
    p.add_argument("--hidden", type=int, default=48)
    p.add_argument("--embed", type=int, default=64)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seconds", type=float, default=75.0)
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--seed", type=int, default=7)
    return p.parse_args()


def prepare(args):
    """Writes one float16 matrix of all frames and a manifest of the utterances."""
    feats, manifest = os.path.join(args.data, "feats.npy"), os.path.join(args.data, "manifest.json")
    if os.path.exists(manifest):
        return feats, manifest
    os.makedirs(args.data, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    total = args.speakers * args.utts * UTT_FRAMES
    out = np.lib.format.open_memmap(feats, mode="w+", dtype=np.float16, shape=(total, N_MELS))
    rows, pos = [], 0
    for s in range(args.speakers):
        timbre = rng.normal(0, 1, N_MELS).astype(np.float32)
        for u in range(args.utts):
            x = rng.normal(0, 1, (UTT_FRAMES, N_MELS)).astype(np.float32)
            x[1:] = 0.6 * x[:-1] + 0.4 * x[1:]
            out[pos:pos + UTT_FRAMES] = (x + 0.5 * timbre).astype(np.float16)
            rows.append({"spk": f"id1{s:04d}", "utt": f"id1{s:04d}/{u:05d}", "offset": pos})
            pos += UTT_FRAMES
    out.flush()
    with open(manifest, "w") as f:
        json.dump(rows, f)
    return feats, manifest


class CropDataset(Dataset):
    """Every window of CROP frames of every utterance is one item."""

    def __init__(self, feats, manifest):
        self.feats = np.load(feats, mmap_mode="r")
        with open(manifest) as f:
            rows = json.load(f)
        starts = np.arange(UTT_FRAMES - CROP)
        self.offsets = (np.array([r["offset"] for r in rows])[:, None] + starts[None]).reshape(-1)
        self.speakers = np.repeat(np.array([r["spk"] for r in rows]), len(starts))

    def __len__(self):
        return len(self.offsets)

    def __getitem__(self, i):
        o = self.offsets[i]
        return torch.from_numpy(np.asarray(self.feats[o:o + CROP], dtype=np.float32))


class SpeakerBatchSampler(Sampler):
    """Yields the indices of one batch, grouped by speaker."""

    def __init__(self, speakers, n_speakers, n_crops, seed=0):
        self.speakers = speakers
        self.unique = np.unique(speakers)
        self.n_speakers = n_speakers
        self.n_crops = n_crops
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.unique) // self.n_speakers

    def __iter__(self):
        order = self.rng.permutation(self.unique)
        for b in range(len(self)):
            batch = []
            for spk in order[b * self.n_speakers:(b + 1) * self.n_speakers]:
                pool = np.flatnonzero(self.speakers == spk)
                batch.extend(self.rng.choice(pool, self.n_crops, replace=False).tolist())
            yield batch


class SpeakerEncoder(nn.Module):
    def __init__(self, hidden, embed):
        super().__init__()
        self.tdnn = nn.Sequential(
            nn.Conv1d(N_MELS, hidden, 5), nn.ReLU(), nn.BatchNorm1d(hidden),
            nn.Conv1d(hidden, hidden, 3, dilation=2), nn.ReLU(), nn.BatchNorm1d(hidden),
            nn.Conv1d(hidden, hidden, 3, dilation=3), nn.ReLU(), nn.BatchNorm1d(hidden),
            nn.Conv1d(hidden, 3 * hidden, 1), nn.ReLU(),
        )
        self.proj = nn.Linear(6 * hidden, embed)

    def forward(self, x):
        h = self.tdnn(x.transpose(1, 2))
        std, mean = torch.std_mean(h, dim=2)
        return F.normalize(self.proj(torch.cat([mean, std], dim=1)), dim=1)


class GE2ELoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(10.0))
        self.b = nn.Parameter(torch.tensor(-5.0))

    def forward(self, e, n, m):
        e = e.view(n, m, -1)
        centroid = e.mean(1)
        excl = (e.sum(1, keepdim=True) - e) / (m - 1)
        sim = torch.einsum("nmd,kd->nmk", e, F.normalize(centroid, dim=1))
        own = (e * F.normalize(excl, dim=2)).sum(2)
        eye = torch.eye(n, dtype=torch.bool)[:, None, :].expand(n, m, n)
        sim = torch.where(eye, own[..., None], sim)
        logits = self.w.clamp(min=1e-3) * sim + self.b
        target = torch.arange(n).repeat_interleave(m)
        logits = logits.view(n * m, n)
        acc = (logits.argmax(1) == target).float().mean()
        return F.cross_entropy(logits, target), acc


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    dataset = CropDataset(*prepare(args))
    sampler = SpeakerBatchSampler(dataset.speakers, args.speakers_per_batch, args.crops_per_speaker, args.seed)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=0)
    log.info("%d crops of %d speakers", len(dataset), len(sampler.unique))

    model, criterion = SpeakerEncoder(args.hidden, args.embed), GE2ELoss()
    params = list(model.parameters()) + list(criterion.parameters())
    opt = torch.optim.AdamW(params, lr=args.lr, fused=True)

    step, epoch, t0 = 0, 0, time.time()
    run_loss = torch.zeros(())
    run_acc = torch.zeros(())
    while time.time() - t0 < args.seconds:
        for x in loader:
            loss, acc = criterion(model(x), args.speakers_per_batch, args.crops_per_speaker)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            run_loss += loss.detach()
            run_acc += acc
            step += 1
            if step % args.log_every == 0:
                log.info("epoch %d step %d loss %.3f acc %.3f %.2f steps/s", epoch, step,
                         run_loss.item() / args.log_every, run_acc.item() / args.log_every,
                         step / (time.time() - t0))
                run_loss.zero_()
                run_acc.zero_()
            if time.time() - t0 >= args.seconds:
                break
        epoch += 1
    log.info("done: %d steps in %.1fs", step, time.time() - t0)


if __name__ == "__main__":
    main()
