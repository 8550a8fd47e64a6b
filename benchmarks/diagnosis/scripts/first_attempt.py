"""A first attempt at classifying pictures; the loader is used as it comes."""

import time

import numpy as np
import torch
from skimage import data, transform
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE = 112
BATCH = 8
STEP_MS = 60


class Pictures(Dataset):
    def __init__(self):
        self.images = [data.astronaut(), data.chelsea(), data.coffee(), data.rocket()]

    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        image = transform.resize(self.images[index % 4][:224, :224], (SIDE, SIDE))
        return torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1), index % 4


class Backbone(nn.Module):
    """Its pause stands for a device that computes while the cores are free."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 4)

    def forward(self, images):
        time.sleep(STEP_MS / 1000)
        return self.head(images.mean((2, 3)))


model = Backbone()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train_loader = None
if __name__ == "__main__":
    train_loader = DataLoader(Pictures(), batch_size=BATCH, shuffle=True)
    for epoch in range(10):
        for images, labels in train_loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        print("epoch", epoch, "loss", loss.item())
