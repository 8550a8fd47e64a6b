"""Recommendations from a graph of users and items, whose adjacency matrix is sparse, in coordinates."""

import torch
from torch import nn
from torch.nn import functional as F

USERS, ITEMS, EDGES, SIZE, LAYERS, BATCH = 3_000, 2_000, 60_000, 64, 3, 1_024


def adjacency(users, items):
    rows, columns = torch.cat([users, items + USERS]), torch.cat([items + USERS, users])
    size = USERS + ITEMS
    degree = torch.bincount(rows, minlength=size).clamp(min=1).float()
    values = (degree[rows] * degree[columns]).rsqrt()
    return torch.sparse_coo_tensor(torch.stack([rows, columns]), values, (size, size)).coalesce()


class Recommender(nn.Module):
    def __init__(self, graph):
        super().__init__()
        self.graph = graph
        self.embedding = nn.Embedding(USERS + ITEMS, SIZE)

    def forward(self):
        layers = [self.embedding.weight]
        for _ in range(LAYERS):
            layers.append(torch.sparse.mm(self.graph, layers[-1]))
        return torch.stack(layers).mean(0)


def main():
    users, items = torch.randint(USERS, (EDGES,)), torch.randint(ITEMS, (EDGES,))
    net = Recommender(adjacency(users, items))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.001, fused=True)
    for _ in range(1_000):
        for chosen in torch.randperm(EDGES).split(BATCH):
            found = net()
            user, liked = found[users[chosen]], found[USERS + items[chosen]]
            other = found[USERS + torch.randint(ITEMS, (len(chosen),))]
            loss = F.softplus((user * other).sum(1) - (user * liked).sum(1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
