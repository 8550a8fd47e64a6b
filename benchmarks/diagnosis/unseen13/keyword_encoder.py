#!/usr/bin/env python
"""Train the intent encoder of the voice assistant on log-mel features.

usage: python keyword_encoder.py [--epochs 4] [--batch-size 16]
"""
import argparse
import json
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CORPUS = os.path.join(tempfile.gettempdir(), "keyword_encoder")
REGISTRY = {}


def register(name):
    def wrap(cls):
        REGISTRY[name] = cls
        return cls

    return wrap


def build(spec):
    kwargs = dict(spec)
    return REGISTRY[kwargs.pop("type")](**kwargs)


CONFIG = {
    "corpus": {"n_utterances": 6000, "n_mels": 40, "n_intents": 24, "max_frames": 800},
    "model": {"type": "conformer_lite", "n_mels": 40, "dim": 96, "heads": 4, "layers": 2, "n_intents": 24, "subsample": 4},
    "optim": {"lr": 5e-4, "weight_decay": 1e-2},
}


def synthesize_corpus(n_utterances, n_mels, n_intents, max_frames):
    """Feature dump in the layout of our Kaldi export: one flat matrix plus a segment table."""
    feats = os.path.join(CORPUS, "feats.npy")
    segments = os.path.join(CORPUS, "segments.json")
    if not os.path.exists(segments):
        os.makedirs(CORPUS, exist_ok=True)
        rng = np.random.default_rng(3)
        lengths = np.clip(np.exp(rng.normal(math.log(130), 0.45, n_utterances)), 40, max_frames).astype(int)
        labels = rng.integers(0, n_intents, n_utterances)
        templates = rng.normal(size=(n_intents, 40, n_mels)).astype(np.float32)
        flat = rng.normal(size=(int(lengths.sum()), n_mels)).astype(np.float32)
        table, begin = [], 0
        for n, y in zip(lengths.tolist(), labels.tolist()):
            at = int(rng.integers(0, n - 39))
            flat[begin + at : begin + at + 40] += templates[y]
            table.append({"begin": begin, "frames": n, "intent": y})
            begin += n
        np.save(feats, flat.astype(np.float16))
        with open(segments + ".tmp", "w") as f:
            json.dump(table, f)
        os.replace(segments + ".tmp", segments)
    with open(segments) as f:
        return np.load(feats), json.load(f)


class Utterances(Dataset):
    def __init__(self, feats, table):
        self.feats, self.table = feats, table

    def __len__(self):
        return len(self.table)

    def __getitem__(self, i):
        seg = self.table[i]
        x = self.feats[seg["begin"] : seg["begin"] + seg["frames"]]
        return torch.from_numpy(x.astype(np.float32)), seg["intent"]


class PadCollator:
    """Stacks utterances into (batch, frames, mels) together with their lengths."""

    def __init__(self, max_frames, n_mels):
        self.max_frames = max_frames
        self.n_mels = n_mels

    def __call__(self, samples):
        lengths = torch.tensor([len(x) for x, _ in samples])
        feats = torch.zeros(len(samples), self.max_frames, self.n_mels)
        for row, (x, _) in zip(feats, samples):
            row[: len(x)] = x
        return feats, lengths, torch.tensor([y for _, y in samples])


class SinusoidalPositions(nn.Module):
    def __init__(self, dim, max_len=2000):
        super().__init__()
        pos = torch.arange(max_len).unsqueeze(1)
        div = torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
        table = torch.zeros(max_len, dim)
        table[:, 0::2], table[:, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
        self.register_buffer("table", table)

    def forward(self, x):
        return x + self.table[: x.shape[1]]


@register("conformer_lite")
class IntentEncoder(nn.Module):
    """Stacks `subsample` frames, runs a transformer over them, pools over valid frames."""

    def __init__(self, n_mels, dim, heads, layers, n_intents, subsample):
        super().__init__()
        self.subsample = subsample
        self.project = nn.Linear(n_mels * subsample, dim)
        self.positions = SinusoidalPositions(dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(dim, n_intents)

    def forward(self, feats, lengths):
        b, t, m = feats.shape
        extra = -t % self.subsample
        feats = F.pad(feats, (0, 0, 0, extra)).reshape(b, -1, m * self.subsample)
        frames = (lengths + self.subsample - 1) // self.subsample
        valid = torch.arange(feats.shape[1])[None, :] < frames[:, None]
        h = self.encoder(self.positions(self.project(feats)), src_key_padding_mask=~valid)
        h = h.masked_fill(~valid[..., None], 0.0)
        return self.head(h.sum(1) / frames[:, None])


class RunLogger:
    def __init__(self, every):
        self.every, self.t0 = every, time.time()

    def __call__(self, step, loss, correct, total):
        if step % self.every == 0:
            print(f"[{time.time() - self.t0:7.1f}s] step {step:5d} loss {loss:.3f} acc {correct / total:.3f}", flush=True)


def train(args):
    torch.manual_seed(args.seed)
    feats, table = synthesize_corpus(**CONFIG["corpus"])
    collate = PadCollator(CONFIG["corpus"]["max_frames"], CONFIG["corpus"]["n_mels"])
    loader = DataLoader(
        Utterances(feats, table), batch_size=args.batch_size, shuffle=True, collate_fn=collate, drop_last=True
    )
    model = build(CONFIG["model"])
    optimizer = torch.optim.AdamW(model.parameters(), **CONFIG["optim"])
    logger = RunLogger(every=20)
    step = 0
    for epoch in range(args.epochs):
        correct = total = 0
        for x, lengths, y in loader:
            logits = model(x, lengths)
            loss = F.cross_entropy(logits, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            correct += (logits.argmax(1) == y).sum().item()
            total += len(y)
            logger(step, loss.item(), correct, total)
        print(f"epoch {epoch} done, accuracy {correct / total:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1, help="the box is shared, be a good neighbour")
    train(parser.parse_args())
