"""A head is trained on the features of a frozen network, which computes them anew from the same pictures each time."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE, PICTURES, CLASSES = 32, 256, 7


def block(before, after):
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (3, 32, 64, 64)
        self.backbone = nn.Sequential(
            *map(block, widths[:-1], widths[1:]), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        ).requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, CLASSES))

    def forward(self, pictures):
        self.backbone.eval()
        return self.head(self.backbone(pictures))


torch.manual_seed(0)
pictures, labels = torch.rand(PICTURES, 3, SIDE, SIDE), torch.randint(0, CLASSES, (PICTURES,))
model = Classifier()
optimizer = torch.optim.AdamW(model.head.parameters())
for _epoch in range(10_000):
    for batch, wanted in DataLoader(TensorDataset(pictures, labels), 16, shuffle=True):
        loss = nn.functional.cross_entropy(model(batch), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
