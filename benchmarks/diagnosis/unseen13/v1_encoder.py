"""
CNN encoding model: natural movie clips -> calcium responses of V1 neurons
(core + readout, after the usual recipe).  Synthetic session until I get the
real one exported from suite2p.
"""
import os
import tempfile
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch.utils.data import TensorDataset, DataLoader

tmpdir = os.path.join(tempfile.gettempdir(), "v1_encoder")
os.makedirs(tmpdir, exist_ok=True)

N_NEURONS = 150
N_STIM = 3000
SIZE = 24
BATCH = 64
N_EPOCHS = 60
PRINT_EVERY = 25


# ---------------------------------------------------------------- session
def gabor(x0, y0, theta, sf, sigma):
    yy, xx = np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij")
    xr = (xx - x0) * np.cos(theta) + (yy - y0) * np.sin(theta)
    env = np.exp(-((xx - x0) ** 2 + (yy - y0) ** 2) / 2 / sigma ** 2)
    g = env * np.cos(2 * np.pi * sf * xr)
    return g - g.mean()


def simulate_session(seed=0):
    rng = np.random.default_rng(seed)
    # 1/f images
    fx = np.fft.fftfreq(SIZE)
    f = np.sqrt(fx[:, None] ** 2 + fx[None, :] ** 2)
    f[0, 0] = 1
    spec = rng.normal(size=(N_STIM, SIZE, SIZE)) + 1j * rng.normal(size=(N_STIM, SIZE, SIZE))
    img = np.fft.ifft2(spec / f).real
    img = (img - img.mean((1, 2), keepdims=True)) / img.std((1, 2), keepdims=True)

    resp = np.zeros((N_STIM, N_NEURONS))
    for n in range(N_NEURONS):
        g = gabor(rng.uniform(6, 18), rng.uniform(6, 18), rng.uniform(0, np.pi),
                  rng.uniform(0.08, 0.2), rng.uniform(2, 4))
        drive = (img * g).sum((1, 2))
        drive = drive / drive.std()
        if rng.random() < 0.4:              # complex-ish
            drive = drive ** 2 - 1
        resp[:, n] = np.log1p(np.exp(1.5 * drive)) + 0.1
    resp = rng.poisson(resp * 2) / 2 + np.abs(rng.normal(0, 0.05, resp.shape))
    return img.astype(np.float32), resp.astype(np.float32)


fname = os.path.join(tmpdir, "session.npz")
if os.path.isfile(fname):
    z = np.load(fname)
    images, responses = z["images"], z["responses"]
else:
    images, responses = simulate_session()
    np.savez(fname, images=images, responses=responses)

images = torch.from_numpy(images).unsqueeze(1)
responses = torch.from_numpy(responses)
n_train = int(0.85 * N_STIM)
train_loader = DataLoader(TensorDataset(images[:n_train], responses[:n_train]),
                          batch_size=BATCH, shuffle=True, drop_last=True)
val_images, val_resp = images[n_train:], responses[n_train:]


# ---------------------------------------------------------------- model
class Core(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.conv1 = nn.Conv2d(1, ch, 7, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(ch)
        self.conv2 = nn.Conv2d(ch, ch, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(ch)

    def forward(self, x):
        x = F.elu(self.bn1(self.conv1(x)))
        x = F.avg_pool2d(x, 2)
        return F.elu(self.bn2(self.conv2(x)))


class Readout(nn.Module):
    """factorised: spatial mask x feature weights"""

    def __init__(self, ch, size, n):
        super().__init__()
        self.space = nn.Parameter(torch.randn(n, size * size) * 0.01)
        self.feat = nn.Parameter(torch.randn(n, ch) * 0.1)
        self.bias = nn.Parameter(torch.zeros(n))

    def forward(self, h):
        h = h.flatten(2)                                     # B, C, HW
        h = torch.matmul(h, self.space.t())                  # B, C, N
        return (h * self.feat.t()).sum(1) + self.bias


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = Core()
        self.readout = Readout(16, SIZE // 2, N_NEURONS)

    def forward(self, x):
        return F.elu(self.readout(self.core(x))) + 1 + 1e-4


def neuron_corr(pred, resp):
    """rank correlation per neuron (robust to the few huge transients)"""
    pred = pred.detach().numpy()
    resp = resp.numpy()
    cc = []
    for n in range(resp.shape[1]):
        cc.append(spearmanr(pred[:, n], resp[:, n])[0])
    return np.nanmean(cc)


torch.manual_seed(1)
model = Encoder()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
poisson = nn.PoissonNLLLoss(log_input=False)

loss_curve, cc_curve = [], []
it = 0
for epoch in range(N_EPOCHS):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        pred = model(x)
        loss = poisson(pred, y) + 1e-4 * model.readout.space.abs().sum()
        loss.backward()
        optimizer.step()

        loss_curve.append(loss.item())
        cc_curve.append(neuron_corr(pred, y))
        if it % PRINT_EVERY == 0:
            print(f"epoch {epoch:2d} it {it:5d}  loss {loss_curve[-1]:.4f}  train cc {cc_curve[-1]:.3f}",
                  flush=True)
        it += 1

    model.eval()
    with torch.no_grad():
        cc_val = neuron_corr(model(val_images), val_resp)
    print(f"=== epoch {epoch}: mean loss {np.mean(loss_curve[-len(train_loader):]):.4f}  val cc {cc_val:.3f}")

np.savez(os.path.join(tmpdir, "curves.npz"), loss=loss_curve, cc=cc_curve)
torch.save(model.state_dict(), os.path.join(tmpdir, "encoder.pt"))
