"""Points of a cloud are labelled from their own features and one vector of the whole cloud, put beside each."""

import torch
from torch import nn
from torch.nn import functional as F

POINTS, BATCH, WIDTH, LABELS = 512, 4, 256, 8


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.near = nn.Sequential(nn.Conv1d(3, 32, 1), nn.ReLU())
        self.far = nn.Sequential(nn.Conv1d(32, WIDTH, 1), nn.ReLU())
        self.both = nn.Conv1d(WIDTH + 32, 128, 1)
        self.labels = nn.Conv1d(128, LABELS, 1)

    def forward(self, points):
        near = self.near(points)
        whole = self.far(near).amax(2, keepdim=True).repeat(1, 1, points.shape[2])
        return self.labels(F.relu(self.both(torch.cat([whole, near], 1))))


def main():
    segmenter = Segmenter()
    optimizer = torch.optim.Adam(segmenter.parameters())
    for _ in range(100_000):
        points = torch.randn(BATCH, 3, POINTS)
        labels = (points.sum(1) > 0).long()
        loss = F.cross_entropy(segmenter(points), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
