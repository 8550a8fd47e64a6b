import time

import numpy as np
import torch
import torch.nn as nn
from skimage import data
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

BATCH_SIZE = 24
CROP = 72
BASE_WIDTH = 24

NUM_EPOCHS = 2000
NUM_CLASSES = 6

augmentation = v2.Compose([
    v2.RandomResizedCrop(CROP, scale=(0.5, 1.0), antialias=True),
    v2.RandomHorizontalFlip(),
    v2.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3),
    v2.ToDtype(torch.float32, scale=True),
    v2.Normalize([0.45, 0.43, 0.4], [0.25, 0.25, 0.25]),
])


class PatchDataset(Dataset):
    """96x96 patches of photographs, kept as uint8; label = photograph and half it came from."""

    def __init__(self, n=3000):
        rng = np.random.RandomState(0)
        photos = [data.astronaut(), data.coffee(), data.chelsea()]
        patches, labels = [], []
        for i in range(n):
            p = photos[i % 3]
            y = rng.randint(0, p.shape[0] - 96)
            x = rng.randint(0, p.shape[1] - 96)
            patches.append(p[y:y + 96, x:x + 96])
            labels.append(2 * (i % 3) + int(x + 48 > p.shape[1] // 2))
        self.patches = torch.from_numpy(np.stack(patches)).permute(0, 3, 1, 2).contiguous()
        self.labels = torch.tensor(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        return self.patches[idx], self.labels[idx]


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c)
        self.conv2 = nn.Conv2d(c, c, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c)

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(out)))


def make_model():
    w = BASE_WIDTH
    return nn.Sequential(
        nn.Conv2d(3, w, 7, stride=4, padding=3, bias=False), nn.BatchNorm2d(w), nn.ReLU(),
        Residual(w),
        nn.Conv2d(w, 2 * w, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * w, NUM_CLASSES))


def train_one_epoch(model, loader, optimizer, criterion):
    loss_total, correct = 0.0, 0
    for patches, labels in loader:
        images = torch.stack([augmentation(patch) for patch in patches])
        outputs = model(images)
        loss = criterion(outputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_total += loss.item() * len(labels)
        correct += (outputs.argmax(1) == labels).sum().item()
    n = len(loader.dataset)
    return loss_total / n, correct / n


if __name__ == '__main__':
    torch.manual_seed(0)
    loader = DataLoader(PatchDataset(), batch_size=BATCH_SIZE, shuffle=True,
                        num_workers=2, persistent_workers=True)
    model = make_model()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
    for epoch in range(NUM_EPOCHS):
        t = time.time()
        loss, acc = train_one_epoch(model, loader, optimizer, criterion)
        print(f'Epoch [{epoch + 1}/{NUM_EPOCHS}] loss: {loss:.4f} acc: {acc:.4f} ({time.time() - t:.1f}s)')
