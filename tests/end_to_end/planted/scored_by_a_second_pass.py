"""A network that is called again on each batch for its accuracy, in training mode, with the weights as they were."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

net = nn.Sequential(
    nn.Conv2d(3, 24, 5), nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 24, 5), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
)
pictures, labels = torch.rand(4096, 3, 24, 24), torch.randint(0, 10, (4096,))
net(pictures[:2])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
right = torch.zeros(())
for _ in range(1000):
    for x, y in DataLoader(TensorDataset(pictures, labels), batch_size=32, shuffle=True):
        loss = nn.functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            for k in (1, 3, 5):
                right += (net(x).topk(k).indices == y[:, None]).any(1).sum()
        optimizer.step()
