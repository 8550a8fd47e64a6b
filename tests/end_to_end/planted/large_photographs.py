"""Photographs of 2000 pixels are decoded in full for a crop of 96. argv[1]: the folder of photographs."""

import sys
from pathlib import Path

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Photographs(Dataset):
    def __init__(self, folder):
        self.paths = sorted(Path(folder).glob("*.jpg"))
        self.prepare = transforms.Compose([transforms.RandomCrop(96), transforms.ToTensor()])

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        with Image.open(self.paths[index % len(self.paths)]) as picture:
            return self.prepare(picture.convert("RGB")), index % 10


def main():
    net = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 23 * 23, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for pictures, labels in DataLoader(Photographs(sys.argv[1]), batch_size=8, num_workers=2):
        loss = nn.functional.cross_entropy(net(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
