# Predict tomorrow's SST anomaly in a box from the last five days.
# (was: notebooks/03_sst_cnn.ipynb)

# %% imports
import os
import tempfile
import h5py
import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import nn
from torch.utils.data import Dataset, DataLoader

# %% settings
tmp = os.path.join(tempfile.gettempdir(), 'sst_forecast')
os.makedirs(tmp, exist_ok=True)
fn = os.path.join(tmp, 'sst_daily_1deg.h5')

ndays, nlat, nlon = 400, 180, 360
box = 32          # degrees
nhist = 5
batch_size = 16
n_epochs = 25
lr = 5e-4

# %% make something that looks like OISST
if not os.path.exists(fn):
    r = np.random.RandomState(0)
    lat = np.linspace(-89.5, 89.5, nlat)
    lon = np.linspace(0.5, 359.5, nlon)
    land = gaussian_filter(r.randn(nlat, nlon), 12, mode='wrap') > 0.015
    clim = 28 * np.cos(np.deg2rad(lat))[:, None] * np.ones((1, nlon))
    anom = gaussian_filter(r.randn(nlat, nlon), 4, mode='wrap') * 10
    with h5py.File(fn + '.part', 'w') as f:
        d = f.create_dataset('sst', (ndays, nlat, nlon), dtype='f4',
                             chunks=(1, nlat, nlon), compression='gzip')
        for k in range(ndays):
            anom = 0.95 * np.roll(anom, 1 if k % 3 == 0 else 0, axis=1)
            anom += gaussian_filter(r.randn(nlat, nlon), 4, mode='wrap') * 3
            season = 4 * np.sin(2 * np.pi * k / 365.) * np.sin(np.deg2rad(lat))[:, None]
            fld = clim + season + anom
            d[k] = np.round(fld, 2).astype('f4')
        f['lat'] = lat
        f['lon'] = lon
        f['land'] = land
    os.rename(fn + '.part', fn)

# %% dataset: random boxes over ocean


class SSTBoxes(Dataset):
    def __init__(self, filename, days, n_samples, seed):
        self.f = h5py.File(filename, 'r')
        self.sst = self.f['sst']
        self.land = self.f['land'][:]
        r = np.random.RandomState(seed)
        self.index = []
        while len(self.index) < n_samples:
            t = r.choice(days)
            j = r.randint(20, nlat - 20 - box)
            i = r.randint(0, nlon - box)
            if self.land[j:j + box, i:i + box].mean() < 0.6:
                self.index.append((t, j, i))

    def __len__(self):
        return len(self.index)

    def __getitem__(self, n):
        t, j, i = self.index[n]
        x = []
        for k in range(t - nhist, t + 1):
            day = self.sst[k]
            x.append(day[j:j + box, i:i + box])
        x = np.stack(x)
        mask = ~self.land[j:j + box, i:i + box]
        x = x - x[:nhist].mean()
        x = x * mask
        x = torch.tensor(x / 3.0, dtype=torch.float32)
        return x[:nhist], x[nhist:], torch.tensor(mask, dtype=torch.float32)


days = np.arange(nhist, ndays)
train_days = days[days < 330]
test_days = days[days >= 335]
train_ds = SSTBoxes(fn, train_days, 1600, 1)
test_ds = SSTBoxes(fn, test_days, 96, 2)
train_loader = DataLoader(train_ds, batch_size=batch_size, shuffle=True, drop_last=True)
test_loader = DataLoader(test_ds, batch_size=batch_size)

# %% model


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.GroupNorm(4, cout), nn.ReLU())


class ConvForecast(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.enc = block(nhist, w)
        self.mid = nn.ModuleList([block(w, w) for _ in range(3)])
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        h = self.enc(x)
        for m in self.mid:
            h = h + m(h)
        # persistence + correction
        return x[:, -1:] + self.out(h)


torch.manual_seed(3)
model = ConvForecast()
optimizer = torch.optim.AdamW(model.parameters(), lr=lr)


def masked_mse(p, y, m):
    m = m.unsqueeze(1)
    return ((p - y) ** 2 * m).sum() / m.sum()


# %% train
history = []
for epoch in range(n_epochs):
    model.train()
    losses = []
    for step, (x, y, m) in enumerate(train_loader):
        pred = model(x)
        loss = masked_mse(pred, y, m)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 20 == 0:
            print('epoch', epoch, 'step', step, 'mse', np.mean(losses[-20:]), flush=True)

    model.eval()
    rmse, pers = [], []
    with torch.no_grad():
        for x, y, m in test_loader:
            rmse.append(masked_mse(model(x), y, m).item())
            pers.append(masked_mse(x[:, -1:], y, m).item())
    history.append((np.mean(losses), np.sqrt(np.mean(rmse)) * 3, np.sqrt(np.mean(pers)) * 3))
    print('epoch %d  train %.4f  test rmse %.3f K  persistence %.3f K' % ((epoch,) + history[-1]))

np.savetxt(os.path.join(tmp, 'history.txt'), np.array(history))
