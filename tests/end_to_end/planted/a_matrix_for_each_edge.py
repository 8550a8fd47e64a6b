"""A layer of a graph with kinds of edges, where the weights of its kind are copied for each edge."""

import torch
from torch import nn
from torch.nn import functional as F

NODES, EDGES, KINDS, SIZE = 2_000, 4_000, 40, 64


class OfKinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(KINDS, SIZE, SIZE) * SIZE**-0.5)

    def forward(self, x, source, target, kind):
        weights = torch.index_select(self.weight, 0, kind)
        sent = torch.bmm(x[source].unsqueeze(1), weights).squeeze(1)
        return torch.zeros_like(x).index_add(0, target, sent)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes = nn.Embedding(NODES, SIZE)
        self.first, self.second, self.out = OfKinds(), OfKinds(), nn.Linear(SIZE, 5)

    def forward(self, *edges):
        return self.out(self.second(F.relu(self.first(self.nodes.weight, *edges)), *edges))


def main():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    labels = torch.randint(5, (NODES,))
    for _ in range(100_000):
        edges = torch.randint(NODES, (EDGES,)), torch.randint(NODES, (EDGES,)), torch.randint(KINDS, (EDGES,))
        loss = F.cross_entropy(net(*edges), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
