"""Classify photographs in a folder, with a plain training loop."""

import argparse
from pathlib import Path

import torch
from PIL import Image
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

BATCH = 16
WIDTH = 24


class Photos(Dataset):
    def __init__(self, folder, transform):
        self.files = sorted(Path(folder).glob("*.jpg")) * 200
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = Image.open(self.files[index]).convert("RGB")
        return self.transform(image), index % 4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    args = parser.parse_args()
    transform = v2.Compose([v2.Resize((96, 96)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    loader = DataLoader(Photos(args.data, transform), batch_size=BATCH, shuffle=True, num_workers=2)
    net = nn.Sequential(
        nn.Conv2d(3, WIDTH, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(WIDTH * 16, 4)
    )
    opt = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(100):
        for images, labels in loader:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(images), labels)
            loss.backward()
            opt.step()
        print(f"epoch {epoch}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
