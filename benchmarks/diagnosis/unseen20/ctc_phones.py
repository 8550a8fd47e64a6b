"""Phone recogniser: log-mel -> conv subsampling -> BiLSTM -> CTC. Toy corpus of synthetic vowels and noise."""
import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
from scipy.io import wavfile
from torch.nn.utils.rnn import pad_sequence

SR, N_FFT, HOP, N_MEL = 8000, 256, 80, 40
N_PHONES = 20  # 0 is the blank


def synth_corpus(root, n, seed):
    rng = np.random.default_rng(seed)
    os.makedirs(root, exist_ok=True)
    formants = rng.uniform(200, 3600, (N_PHONES, 3))
    with open(f"{root}/trans.tsv", "w") as f:
        for i in range(n):
            phones = rng.integers(1, N_PHONES + 1, rng.integers(8, 26))
            pieces = []
            for p in phones:
                t = np.arange(int(rng.uniform(0.06, 0.13) * SR)) / SR
                tone = sum(np.sin(2 * np.pi * fr * rng.uniform(0.97, 1.03) * t + rng.uniform(0, 6)) for fr in formants[p - 1])
                pieces.append(tone * np.hanning(len(t)))
            wav = np.concatenate(pieces) * 0.2
            wav += 0.03 * rng.standard_normal(len(wav))
            wavfile.write(f"{root}/{i:05d}.wav", SR, (np.clip(wav, -1, 1) * 32767).astype(np.int16))
            f.write(f"{i:05d}\t{' '.join(map(str, phones))}\n")


def mel_matrix():
    hz = lambda m: 700 * (10 ** (m / 2595) - 1)
    edges = hz(np.linspace(0, 2595 * np.log10(1 + SR / 2 / 700), N_MEL + 2))
    f = np.fft.rfftfreq(N_FFT, 1 / SR)[:, None]
    up = (f - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - f) / (edges[2:] - edges[1:-1])
    return torch.tensor(np.maximum(0, np.minimum(up, down)), dtype=torch.float32)


MEL = mel_matrix()
WIN = torch.hann_window(N_FFT)


def features(path):
    _, wav = wavfile.read(path)
    spec = torch.stft(torch.from_numpy(wav / np.float32(32768)), N_FFT, HOP, window=WIN, return_complex=True).abs() ** 2
    x = torch.log(spec.T @ MEL + 1e-6)
    return (x - x.mean(0)) / (x.std(0) + 1e-5)


def batches(utts, bsz):
    """similar lengths together, batches in random order"""
    order = sorted(range(len(utts)), key=lambda i: len(utts[i][1]) + random.random())
    chunks = [order[i:i + bsz] for i in range(0, len(order), bsz)]
    random.shuffle(chunks)
    for c in chunks:
        feats = [features(utts[i][0]) for i in c]
        targets = [torch.tensor(utts[i][1]) for i in c]
        flen = torch.tensor([len(f) for f in feats])
        tlen = torch.tensor([len(t) for t in targets])
        yield pad_sequence(feats, batch_first=True), flen, torch.cat(targets), tlen


class Recogniser(nn.Module):
    def __init__(self, hid, layers):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 32, 3, stride=(2, 2), padding=1), nn.ReLU(),
                                  nn.Conv2d(32, 32, 3, stride=(1, 2), padding=1), nn.ReLU())
        self.proj = nn.Linear(32 * (N_MEL // 4), hid)
        self.rnn = nn.LSTM(hid, hid, layers, batch_first=True, bidirectional=True, dropout=0.2)
        self.out = nn.Linear(2 * hid, N_PHONES + 1)

    def forward(self, x, flen):
        z = self.conv(x.unsqueeze(1)).permute(0, 2, 1, 3).flatten(2)
        z, _ = self.rnn(torch.relu(self.proj(z)))
        return self.out(z).log_softmax(-1), (flen + 1) // 2


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


def per(logp, olen, targets, tlen):
    err = 0
    best = logp.argmax(-1).tolist()
    for hyp, n, ref in zip(best, olen.tolist(), targets.split(tlen.tolist())):
        path = hyp[:n]
        out = [p for k, p in enumerate(path) if p and (k == 0 or p != path[k - 1])]
        err += edit_distance(out, ref.tolist())
    return err / tlen.sum().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--hid", type=int, default=128)
    ap.add_argument("--layers", type=int, default=2)
    ap.add_argument("--bsz", type=int, default=12)
    ap.add_argument("--epochs", type=int, default=30)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    random.seed(1)
    torch.manual_seed(1)
    synth_corpus("toy", 1200, 1)
    utts = []
    for line in open("toy/trans.tsv"):
        name, phones = line.rstrip().split("\t")
        utts.append((f"toy/{name}.wav", [int(p) for p in phones.split()]))
    dev, train = utts[:60], utts[60:]

    model = Recogniser(args.hid, args.layers)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    ctc = nn.CTCLoss(zero_infinity=True)
    for ep in range(args.epochs):
        model.train()
        for k, (x, flen, targets, tlen) in enumerate(batches(train, args.bsz)):
            logp, olen = model(x, flen)
            loss = ctc(logp.transpose(0, 1), targets, olen, tlen)
            opt.zero_grad()
            loss.backward()
            gn = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if k % 5 == 0:
                print(f"ep {ep} it {k} ctc {loss.item():.3f} gnorm {gn.item():.2f} per {per(logp, olen, targets, tlen):.3f}", flush=True)
        model.eval()
        with torch.no_grad():
            rates = [per(*model(x, flen), targets, tlen) for x, flen, targets, tlen in batches(dev, args.bsz)]
        print(f"ep {ep} dev PER {sum(rates) / len(rates):.3f}", flush=True)
        torch.save({"model": model.state_dict(), "ep": ep}, "ctc.pt")


if __name__ == "__main__":
    main()
