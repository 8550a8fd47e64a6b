#!/usr/bin/env python
"""Next-item recommendation from shop sessions (GRU4Rec flavoured).

Batches come from a background thread, so that the network never waits for
negative sampling.
"""
import queue
import random
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

N_ITEMS = 4000
N_SESSIONS = 12000
HIST = 24
NEGATIVES = 200
BATCH = 96
DIM = 64
STEPS = 20000
LR = 2e-3
QUEUE_DEPTH = 6


def make_sessions(seed):
    """Markov-ish sessions: users drift through a ring of item clusters."""
    rng = np.random.default_rng(seed)
    sessions = []
    for _ in range(N_SESSIONS):
        n = int(rng.integers(6, 50))
        cluster = rng.integers(0, 80)
        hop = rng.random(n) < 0.1
        clusters = (cluster + np.cumsum(hop)) % 80
        items = clusters * 50 + (rng.pareto(1.2, n) * 4).astype(int) % 50
        sessions.append([int(i) + 1 for i in items])  # 0 is the blank item
    return sessions


class Feeder(threading.Thread):
    """Puts (history, position, target, negatives) batches on a queue for ever."""

    def __init__(self, sessions, seed=0):
        super().__init__(daemon=True)
        self.sessions = sessions
        self.rng = random.Random(seed)
        self.np_rng = np.random.default_rng(seed)
        self.out = queue.Queue(maxsize=QUEUE_DEPTH)
        self.popular = self.count_items()

    def count_items(self):
        counts = [1] * (N_ITEMS + 1)
        for s in self.sessions:
            for item in s:
                counts[item] += 1
        bag = []
        for item in range(1, N_ITEMS + 1):
            bag.extend([item] * max(1, int(counts[item] ** 0.75 / 4)))
        return bag

    def negatives_for(self, seen):
        negs = []
        while len(negs) < NEGATIVES:
            cand = self.rng.choice(self.popular)
            if cand not in seen and cand not in negs:
                negs.append(cand)
        return negs

    def make_batch(self):
        hists, targets, negs = [], [], []
        for _ in range(BATCH):
            s = self.rng.choice(self.sessions)
            cut = self.rng.randint(1, len(s) - 1)
            past = s[max(0, cut - HIST):cut]
            hists.append([0] * (HIST - len(past)) + past)
            targets.append(s[cut])
            negs.append(self.negatives_for(set(s)))
        return torch.tensor(hists), torch.tensor(targets), torch.tensor(negs)

    def run(self):
        while True:
            self.out.put(self.make_batch())


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(N_ITEMS + 1, DIM, padding_idx=0)
        self.bias = nn.Embedding(N_ITEMS + 1, 1)
        self.cell = nn.GRUCell(DIM, DIM)
        self.att = nn.Linear(DIM, 1)
        self.out = nn.Linear(2 * DIM, DIM)
        nn.init.zeros_(self.bias.weight)

    def encode(self, hist):
        e = self.items(hist)
        h = e.new_zeros(len(hist), DIM)
        states = []
        for t in range(hist.shape[1]):
            live = (hist[:, t] > 0).unsqueeze(1)
            h = torch.where(live, self.cell(e[:, t], h), h)
            states.append(h)
        states = torch.stack(states, 1)
        score = self.att(torch.tanh(states)).squeeze(-1).masked_fill(hist == 0, -1e4)
        ctx = (score.softmax(1).unsqueeze(-1) * states).sum(1)
        return self.out(torch.cat([h, ctx], 1))

    def forward(self, hist, target, negs):
        q = self.encode(hist)
        cand = torch.cat([target.unsqueeze(1), negs], 1)
        return torch.einsum("bd,bnd->bn", q, self.items(cand)) + self.bias(cand).squeeze(-1)


def main():
    torch.manual_seed(1)
    sessions = make_sessions(1)
    feeder = Feeder(sessions)
    feeder.start()
    print(f"{len(sessions)} sessions, {len(feeder.popular)} entries in the negative bag")

    model = Recommender()
    opt = torch.optim.Adam(model.parameters(), lr=LR)
    avg, mrr, t0 = 0.0, 0.0, time.time()
    for step in range(1, STEPS + 1):
        hist, target, negs = feeder.out.get()
        logits = model(hist, target, negs)
        loss = F.cross_entropy(logits, torch.zeros(len(hist), dtype=torch.long))
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            rank = 1 + (logits[:, 1:] > logits[:, :1]).sum(1)
        k = min(step, 100)
        avg += (loss.item() - avg) / k
        mrr += ((1.0 / rank).mean().item() - mrr) / k
        if step % 50 == 0:
            print(f"step {step:6d}  loss {avg:.4f}  mrr {mrr:.3f}  {step / (time.time() - t0):.1f} steps/s", flush=True)


if __name__ == "__main__":
    main()
