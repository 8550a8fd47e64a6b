"""Small pictures that are in memory already, and an augmentation that costs far more than the training."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Augmented(Dataset):
    def __init__(self):
        self.pictures = torch.rand(32, 3, 160, 160)
        self.augment = transforms.Compose(
            [transforms.ElasticTransform(alpha=40.0), transforms.GaussianBlur(9), transforms.RandomCrop(96)]
        )

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        return self.augment(self.pictures[index % 32]), index % 10


def main():
    net = nn.Sequential(nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 23 * 23, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for pictures, labels in DataLoader(Augmented(), batch_size=8, num_workers=2):
        loss = nn.functional.cross_entropy(net(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
