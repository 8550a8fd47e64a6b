# Keyword spotting, roughly "Honk"/res8 (Tang & Lin 2018) on synthetic words.
# Front end written from Davis & Mermelstein and the HTK book: framing, DC removal, pre-emphasis, window, |DFT|^2, mel, log, DCT.
import os, sys, time, math, tempfile
os.environ["OPENBLAS_NUM_THREADS"] = "1"   # the box is shared
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

SR        = 16000
WIN       = 480          # 30 ms
HOP       = 160          # 10 ms
NFFT      = 512
NMEL      = 40
NMFCC     = 40
WORDS     = 12
N_CLIPS   = 2400
BATCH     = 32
EPOCHS    = 25
MAP       = 12           # feature maps in the residual net

torch.manual_seed(3)


# --------------------------------------------------------------- fake speech
def synth(word, rng):
    """A 'word' is a sequence of 3 vowels-like formant pairs, speaker = pitch + tempo."""
    r = np.random.default_rng(1000 + word)
    formants = r.uniform([250, 900], [900, 2600], (3, 2))
    f0 = rng.uniform(90, 240)
    seg = int(SR * rng.uniform(0.16, 0.26))
    t = np.arange(seg) / SR
    out = []
    for f1, f2 in formants * rng.normal(1, 0.03, (3, 2)):
        x = np.zeros(seg)
        for h in range(1, 18):
            f = h * f0
            a = math.exp(-((f - f1) / 150) ** 2) + 0.6 * math.exp(-((f - f2) / 200) ** 2)
            x += a * np.sin(2 * np.pi * f * t)
        out.append(x * np.hanning(seg))
    x = np.concatenate(out)[:SR]
    clip = rng.normal(0, 0.02, SR)
    s = rng.integers(0, SR - len(x) + 1)
    clip[s:s + len(x)] += x / (np.abs(x).max() + 1e-9) * rng.uniform(0.3, 0.9)
    return (clip * 20000).clip(-32768, 32767).astype(np.int16)


def prepare():
    d = os.path.join(tempfile.gettempdir(), "kws_mfcc")
    f = os.path.join(d, "clips.npy")
    if not os.path.exists(f):
        os.makedirs(d, exist_ok=True)
        rng = np.random.default_rng(0)
        y = rng.integers(0, WORDS, N_CLIPS)
        x = np.stack([synth(int(w), rng) for w in y])
        np.save(os.path.join(d, "words.npy"), y)
        np.save(f, x)
    return np.load(f), np.load(os.path.join(d, "words.npy"))


# ----------------------------------------------------------------- front end
def mel(f):     return 2595 * math.log10(1 + f / 700)
def mel_inv(m): return 700 * (10 ** (m / 2595) - 1)

def mel_filters():
    edges = [mel_inv(m) for m in np.linspace(mel(20), mel(SR / 2), NMEL + 2)]
    bins = [int((NFFT + 1) * e / SR) for e in edges]
    fb = np.zeros((NMEL, NFFT // 2 + 1))
    for m in range(1, NMEL + 1):
        lo, mid, hi = bins[m - 1], bins[m], bins[m + 1]
        for k in range(lo, mid): fb[m - 1, k] = (k - lo) / max(mid - lo, 1)
        for k in range(mid, hi): fb[m - 1, k] = (hi - k) / max(hi - mid, 1)
    return fb

FB     = mel_filters()
WINDOW = np.hamming(WIN)
DCT    = np.array([[math.cos(math.pi * k * (n + 0.5) / NMEL) for n in range(NMEL)] for k in range(NMFCC)])
DCT   *= math.sqrt(2 / NMEL)

def mfcc(x):
    feats = []
    for start in range(0, len(x) - WIN + 1, HOP):
        frame = x[start:start + WIN]
        frame = frame - frame.mean()
        energy = np.log(np.sum(frame ** 2) + 1e-6)
        frame = np.append(0.03 * frame[0], frame[1:] - 0.97 * frame[:-1])
        power = np.abs(np.fft.rfft(frame * WINDOW, NFFT)) ** 2 / NFFT
        logmel = np.log(FB @ power + 1e-6)
        c = DCT @ logmel
        c[0] = energy                        # as HTK does with _E
        feats.append(c)
    return np.stack(feats)


class Clips(Dataset):
    def __init__(self, x, y, train):
        self.x, self.y, self.train = x, y, train

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i].astype(np.float64) / 32768
        if self.train:                       # random shift up to 100 ms, background noise
            shift = np.random.randint(-1600, 1600)
            x = np.roll(x, shift)
            x = x + np.random.uniform(0, 0.02) * np.random.randn(len(x))
        return torch.from_numpy(mfcc(x)).float().unsqueeze(0), int(self.y[i])


# --------------------------------------------------------------------- model
class Res8(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv0 = nn.Conv2d(1, MAP, 3, padding=1, bias=False)
        self.pool = nn.AvgPool2d((4, 3))
        self.convs = nn.ModuleList(nn.Conv2d(MAP, MAP, 3, padding=1, bias=False) for _ in range(6))
        self.bns = nn.ModuleList(nn.BatchNorm2d(MAP, affine=False) for _ in range(6))
        self.out = nn.Linear(MAP, WORDS)

    def forward(self, x):
        x = self.pool(F.relu(self.conv0(x)))
        old = x
        for i, (conv, bn) in enumerate(zip(self.convs, self.bns)):
            y = F.relu(conv(x))
            if i % 2 == 1:
                y = y + old
                old = y
            x = bn(y)
        return self.out(x.mean((2, 3)))


x, y = prepare()
n = int(0.9 * len(x))
train_dl = DataLoader(Clips(x[:n], y[:n], True), BATCH, shuffle=True)
test_dl = DataLoader(Clips(x[n:], y[n:], False), BATCH)
net = Res8()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-5)
lr_sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS * len(train_dl))

for ep in range(EPOCHS):
    net.train()
    tic, tot = time.time(), 0
    for i, (a, b) in enumerate(train_dl):
        loss = F.cross_entropy(net(a), b)
        opt.zero_grad(); loss.backward(); opt.step(); lr_sched.step()
        tot += loss.item()
        if i % 20 == 0:
            sys.stdout.write("ep %02d  %3d/%d  %.3f\n" % (ep, i, len(train_dl), tot / (i + 1))); sys.stdout.flush()
    net.eval()
    with torch.no_grad():
        hit = sum((net(a).argmax(1) == b).sum().item() for a, b in test_dl)
    print("ep %02d  loss %.3f  test %.3f  %.1fs" % (ep, tot / len(train_dl), hit / (len(x) - n), time.time() - tic), flush=True)
