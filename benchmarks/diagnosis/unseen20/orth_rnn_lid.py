# language id from phone strings with an orthogonal recurrent net (long memory, no gates)
# usage: python orth_rnn_lid.py --hid 64 --epochs 40
import argparse
import math

import numpy as np
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.data import DataLoader, TensorDataset

ap = argparse.ArgumentParser()
ap.add_argument("--hid", type=int, default=64)
ap.add_argument("--emb", type=int, default=32)
ap.add_argument("--bsz", type=int, default=64)
ap.add_argument("--epochs", type=int, default=40)
ap.add_argument("--lr", type=float, default=2e-3)
ap.add_argument("--seqlen", type=int, default=48)
ap.add_argument("--nlang", type=int, default=12)
ap.add_argument("--nphone", type=int, default=60)
ap.add_argument("--nutt", type=int, default=16000)
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()


def sample_phones(rng):
    """each language is a phone bigram model near a common one"""
    base = rng.gumbel(size=(args.nphone, args.nphone)) * 1.2
    trans = base[None] + 0.45 * rng.standard_normal((args.nlang, args.nphone, args.nphone))
    trans = np.exp(trans)
    cdf = np.cumsum(trans / trans.sum(-1, keepdims=True), -1)
    lang = rng.integers(0, args.nlang, args.nutt)
    seq = np.zeros((args.nutt, args.seqlen), np.int64)
    seq[:, 0] = rng.integers(0, args.nphone, args.nutt)
    for t in range(1, args.seqlen):
        u = rng.random((args.nutt, 1))
        seq[:, t] = np.minimum((cdf[lang, seq[:, t - 1]] < u).sum(1), args.nphone - 1)
    np.savez("phones.npz", seq=seq, lang=lang)


class ModReLU(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.b = nn.Parameter(torch.zeros(n))

    def forward(self, z):
        return torch.sign(z) * torch.relu(z.abs() + self.b)


class OrthCell(nn.Module):
    def __init__(self, nin, nhid):
        super().__init__()
        self.inp = nn.Linear(nin, nhid)
        rec = nn.Linear(nhid, nhid, bias=False)
        nn.init.orthogonal_(rec.weight)
        self.rec = parametrizations.orthogonal(rec, orthogonal_map="cayley")
        self.act = ModReLU(nhid)

    def forward(self, x, h):
        return self.act(self.inp(x) + self.rec(h))


class OrthRNN(nn.Module):
    def __init__(self, nin, nhid):
        super().__init__()
        self.cell = OrthCell(nin, nhid)
        self.h0 = nn.Parameter(torch.randn(nhid) / math.sqrt(nhid))

    def forward(self, x):
        h = self.h0.expand(x.size(0), -1)
        out = []
        for x_t in x.unbind(1):
            h = self.cell(x_t, h)
            out.append(h)
        return torch.stack(out, 1)


class LID(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(args.nphone, args.emb)
        self.conv = nn.Conv1d(args.emb, args.hid, 3, padding=1)
        self.rnn = OrthRNN(args.hid, args.hid)
        self.query = nn.Linear(args.hid, 4)
        self.out = nn.Sequential(nn.Linear(4 * args.hid, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, args.nlang))

    def forward(self, seq):
        e = torch.relu(self.conv(self.emb(seq).transpose(1, 2))).transpose(1, 2)
        h = self.rnn(e)
        a = self.query(h).softmax(1)
        pooled = torch.einsum("btk,bth->bkh", a, h).flatten(1)
        return self.out(pooled)


sample_phones(np.random.default_rng(args.seed))
torch.manual_seed(args.seed)
npz = np.load("phones.npz")
seq, lang = torch.from_numpy(npz["seq"]), torch.from_numpy(npz["lang"])
n_dev = 1000
train = DataLoader(TensorDataset(seq[n_dev:], lang[n_dev:]), args.bsz, shuffle=True, drop_last=True)
dev = DataLoader(TensorDataset(seq[:n_dev], lang[:n_dev]), 250)

model = LID()
print(model)
print(sum(p.numel() for p in model.parameters()), "params")
# recurrent matrix learns slower
slow = [p for n, p in model.named_parameters() if "rec." in n]
fast = [p for n, p in model.named_parameters() if "rec." not in n]
opt = torch.optim.Adam([{"params": fast}, {"params": slow, "lr": args.lr / 10}], lr=args.lr)
crit = nn.CrossEntropyLoss(label_smoothing=0.05)

best = 0.0
for ep in range(args.epochs):
    model.train()
    tot = cnt = 0
    for i, (s, l) in enumerate(train):
        opt.zero_grad()
        loss = crit(model(s), l)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        opt.step()
        tot += loss.item() * len(l)
        cnt += len(l)
        if i % 50 == 0:
            print(f"ep {ep} it {i} loss {tot / cnt:.4f}", flush=True)
    model.eval()
    with torch.no_grad():
        acc = sum((model(s).argmax(1) == l).sum().item() for s, l in dev) / n_dev
    if acc > best:
        best = acc
        torch.save(model.state_dict(), "lid_best.pt")
    print(f"ep {ep} dev acc {acc:.4f} (best {best:.4f})", flush=True)
