# Linear probe on top of a ResNet-18 trunk: textures of photographs, the trunk stays as it is, only the head is fitted.
import numpy as np
import torch
import torchvision
from skimage import data
from torch import nn
from torchvision.transforms import v2

CROP = 64
BATCH_SIZE = 10
SEED = 44
N_CROPS = 3000
EPOCHS = 300


class CropSet(torch.utils.data.Dataset):
    def __init__(self, n):
        rng = np.random.default_rng(SEED)
        photos = [data.astronaut(), data.coffee(), data.chelsea(), np.stack([data.camera()] * 3, -1)]
        self.images, self.labels = torch.empty(n, 3, CROP, CROP, dtype=torch.uint8), torch.empty(n, dtype=torch.long)
        for i in range(n):
            k = int(rng.integers(len(photos)))
            y = int(rng.integers(photos[k].shape[0] - CROP))
            x = int(rng.integers(photos[k].shape[1] - CROP))
            self.images[i] = torch.from_numpy(photos[k][y : y + CROP, x : x + CROP].copy()).permute(2, 0, 1)
            self.labels[i] = k
        self.prepare = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.prepare(self.images[i]), self.labels[i]


class Probe(nn.Module):
    def __init__(self, n_classes):
        super().__init__()
        trunk = torchvision.models.resnet18(weights=None)
        width = trunk.fc.in_features
        trunk.fc = nn.Identity()
        self.trunk = trunk
        self.head = nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, n_classes))

    def train(self, mode=True):
        super().train(mode)
        self.trunk.eval()
        return self

    def forward(self, x):
        return self.head(self.trunk(x))


def main():
    torch.manual_seed(SEED)
    loader = torch.utils.data.DataLoader(CropSet(N_CROPS), batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
    probe = Probe(4)
    probe.train()
    optimizer = torch.optim.AdamW(probe.head.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    for epoch in range(1, EPOCHS + 1):
        hits, count = 0, 0
        for i, (images, labels) in enumerate(loader):
            scores = probe(images)
            loss = criterion(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 20 == 0:
                hits += (scores.argmax(1) == labels).sum().item()
                count += len(labels)
                print("epoch %d  batch %4d  loss %.4f  accuracy %.3f" % (epoch, i, loss.item(), hits / count), flush=True)


if __name__ == "__main__":
    main()
