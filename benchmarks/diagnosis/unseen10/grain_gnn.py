# Yield strength of polycrystals from their grain arrangement: message passing on the
# neighbour graph of the grain centres, with spectral and path-length encodings.
import os
import os.path as osp
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path
from scipy.spatial import cKDTree
from torch.nn import BatchNorm1d, Linear, ModuleList, ReLU, Sequential
from torch.utils.data import DataLoader, Dataset


class Graph:
    def __init__(self, **kw):
        self.__dict__.update(kw)

    def clone(self):
        return Graph(**self.__dict__)


class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, g):
        for s in self.steps:
            g = s(g)
        return g


class KNNGraph:
    def __init__(self, k):
        self.k = k

    def __call__(self, g):
        pos = g.pos.numpy()
        d, nb = cKDTree(pos).query(pos, k=self.k + 1)
        src = np.repeat(np.arange(len(pos)), self.k)
        dst = nb[:, 1:].reshape(-1)
        g.edge_index = torch.from_numpy(np.stack([np.r_[src, dst], np.r_[dst, src]])).long()
        w = np.r_[d[:, 1:].reshape(-1), d[:, 1:].reshape(-1)]
        g.edge_attr = torch.from_numpy(w).float().view(-1, 1)
        return g


class LaplacianPE:
    def __init__(self, dim):
        self.dim = dim

    def __call__(self, g):
        n = g.pos.size(0)
        a = np.zeros((n, n))
        a[g.edge_index[0].numpy(), g.edge_index[1].numpy()] = 1.0
        dinv = 1.0 / np.sqrt(a.sum(1))
        lap = np.eye(n) - dinv[:, None] * a * dinv[None]
        _, vec = torch.linalg.eigh(torch.from_numpy(lap))
        g.x = torch.cat([g.x, vec[:, 1:self.dim + 1].abs().float()], dim=1)
        return g


class PathHistogram:
    def __init__(self, bins=6):
        self.bins = bins

    def __call__(self, g):
        n = g.pos.size(0)
        ei = g.edge_index.numpy()
        m = csr_matrix((np.ones(ei.shape[1]), (ei[0], ei[1])), shape=(n, n))
        hops = shortest_path(m, unweighted=True, directed=False)
        hist = np.stack([(hops == h).mean(1) for h in range(1, self.bins + 1)], 1)
        g.x = torch.cat([g.x, torch.from_numpy(hist).float()], dim=1)
        return g


class PolycrystalDataset(Dataset):
    def __init__(self, root, transform=None, pre_transform=None):
        self.root, self.transform = root, transform
        if not osp.exists(self.raw_path):
            self.download()
        raw = np.load(self.raw_path)
        self.graphs = []
        for pos, size, angle, y in zip(raw["pos"], raw["size"], raw["angle"], raw["y"]):
            x = np.stack([size, np.cos(4 * angle), np.sin(4 * angle)], 1)
            g = Graph(pos=torch.from_numpy(pos), x=torch.from_numpy(x).float(), y=torch.tensor([y]).float())
            if pre_transform is not None:
                g = pre_transform(g)
            self.graphs.append(g)

    @property
    def raw_path(self):
        return osp.join(self.root, "grains.npz")

    def download(self):
        os.makedirs(self.root, exist_ok=True)
        rng = np.random.default_rng(9)
        P, S, A, Y = [], [], [], []
        for _ in range(1200):
            pos = rng.random((72, 3)) * np.array([1, 1, rng.uniform(0.3, 1.0)])
            size = rng.lognormal(0, 0.3, 72)
            angle = rng.uniform(0, np.pi / 2, 72) * rng.uniform(0.2, 1)
            d, nb = cKDTree(pos).query(pos, k=7)
            mis = np.abs(angle[nb[:, 1:]] - angle[:, None]).mean()
            P.append(pos), S.append(size), A.append(angle)
            Y.append(2 * mis + 0.7 / np.sqrt(size.mean()) + 3 * d[:, 1:].mean())
        Y = (np.array(Y) - np.mean(Y)) / np.std(Y)
        np.savez(self.raw_path, pos=np.array(P), size=np.array(S), angle=np.array(A), y=Y)

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        g = self.graphs[i].clone()
        return g if self.transform is None else self.transform(g)


def collate(graphs):
    xs, eis, eas, ys, batch, off = [], [], [], [], [], 0
    for k, g in enumerate(graphs):
        xs.append(g.x)
        eis.append(g.edge_index + off)
        eas.append(g.edge_attr)
        ys.append(g.y)
        batch.append(torch.full((g.x.size(0),), k))
        off += g.x.size(0)
    return torch.cat(xs), torch.cat(eis, 1), torch.cat(eas), torch.cat(ys), torch.cat(batch)


class GINEConv(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.edge = Linear(1, dim)
        self.mlp = Sequential(Linear(dim, 2 * dim), BatchNorm1d(2 * dim), ReLU(), Linear(2 * dim, dim))
        self.eps = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, ei, ea):
        msg = F.relu(x.index_select(0, ei[0]) + self.edge(ea))
        agg = torch.zeros_like(x).index_add_(0, ei[1], msg)
        return self.mlp((1 + self.eps) * x + agg)


class Net(torch.nn.Module):
    def __init__(self, in_dim, dim=48, layers=3):
        super().__init__()
        self.lin = Linear(in_dim, dim)
        self.convs = ModuleList([GINEConv(dim) for _ in range(layers)])
        self.out = Sequential(Linear(dim, dim), ReLU(), Linear(dim, 1))

    def forward(self, x, ei, ea, batch):
        x = self.lin(x)
        for conv in self.convs:
            x = x + F.relu(conv(x, ei, ea))
        n = int(batch.max()) + 1
        s = torch.zeros(n, x.size(1)).index_add_(0, batch, x)
        c = torch.bincount(batch, minlength=n).unsqueeze(1)
        return self.out(s / c).squeeze(1)


def train(model, loader, optimizer, epoch):
    model.train()
    total = 0
    for i, (x, ei, ea, y, batch) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x, ei, ea, batch), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * y.size(0)
        if i % 20 == 0:
            print(f"Epoch: {epoch:03d}, batch {i}, loss {loss.item():.4f}", flush=True)
    return total / len(loader.dataset)


def main():
    torch.manual_seed(12345)
    root = osp.join(tempfile.gettempdir(), "grain_gnn")
    encode = Compose([KNNGraph(6), LaplacianPE(8), PathHistogram(6)])
    dataset = PolycrystalDataset(root, transform=encode)
    loader = DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True, collate_fn=collate, num_workers=2,
                        persistent_workers=True)
    model = Net(3 + 8 + 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    for epoch in range(1, 501):
        print(f"Epoch: {epoch:03d}, Loss: {train(model, loader, optimizer, epoch):.4f}", flush=True)


if __name__ == "__main__":
    main()
