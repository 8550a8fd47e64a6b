# dense autoencoder for 32x32 patches, cut at random places from photographs
import numpy as np
import torch
import torch.nn as nn
from skimage import data
from torch.utils.data import DataLoader, Dataset


class RandomPatches(Dataset):
    def __init__(self, n=200_000, size=32):
        self.imgs = [data.astronaut()[..., 1].copy(), data.coffee()[..., 1].copy(), data.camera(), data.chelsea()[..., 1].copy()]
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        im = self.imgs[i % len(self.imgs)]
        s = self.size
        y = int(np.random.random() * (im.shape[0] - s))
        x = int(np.random.random() * (im.shape[1] - s))
        return im[y:y + s, x:x + s].astype(np.float32).ravel()


def collate(rows):
    return torch.from_numpy(np.stack(rows))


encoder = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 64))
decoder = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024))
model = nn.Sequential(encoder, decoder)
model = model.float()
model.train()

loader = DataLoader(RandomPatches(), batch_size=256, shuffle=True, num_workers=0, drop_last=True, collate_fn=collate)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, fused=True)
criterion = nn.MSELoss()

torch.manual_seed(0)
running = 0.0
it = 0
for epoch in range(10):
    for batch in loader:
        batch = batch.float() / 255.0
        batch = batch - 0.5
        out = model(batch)
        loss = criterion(out.float(), batch.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += float(loss.item())
        it += 1
        if it % 20 == 0:
            print("epoch", epoch, "it", it, "avg loss", running / 20, flush=True)
            running = 0.0
