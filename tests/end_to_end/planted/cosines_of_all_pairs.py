"""Two views of each sample are to be alike: the cosines of all pairs are made by broadcasting, as in many tutorials."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, SIZE, PROJECTED, TEMPERATURE = 128, 200, 64, 0.5


def nt_xent(z1, z2):
    z = torch.cat([z1, z2])
    similarity = F.cosine_similarity(z.unsqueeze(1), z.unsqueeze(0), dim=2) / TEMPERATURE
    similarity = similarity.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
    target = torch.arange(len(z)).roll(len(z1))
    return F.cross_entropy(similarity, target)


def main():
    net = nn.Sequential(nn.Linear(SIZE, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, PROJECTED))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    data = DataLoader(TensorDataset(torch.randn(20_000, SIZE)), SAMPLES, shuffle=True, drop_last=True)
    while True:
        for (x,) in data:
            views = [net(x + 0.1 * torch.randn_like(x)) for _ in range(2)]
            loss = nt_xent(*views)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
