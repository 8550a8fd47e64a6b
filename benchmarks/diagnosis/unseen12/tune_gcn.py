"""LightGCN for listener - tune recommendation (plain PyTorch).

He et al., "LightGCN: Simplifying and Powering Graph Convolution Network for
Recommendation", SIGIR 2020, with self-written propagation and BPR training.
"""
import argparse
import logging
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("tune_gcn")
DATA = Path(tempfile.gettempdir()) / "tune_gcn"


def make_listens(n_users=3000, n_tunes=4000, per_user=30, seed=2020):
    """Play counts of a folk music session site: listeners like a few of 20 styles."""
    f = DATA / "listens.npz"
    if not f.exists():
        DATA.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(seed)
        style = rng.integers(0, 20, n_tunes)
        pop = rng.pareto(1.5, n_tunes) + 0.05
        rows, cols = [], []
        for u in range(n_users):
            liked = rng.choice(20, 3, replace=False)
            w = pop * np.where(np.isin(style, liked), 12.0, 1.0)
            t = rng.choice(n_tunes, per_user, replace=False, p=w / w.sum())
            rows.append(np.full(per_user, u))
            cols.append(t)
        np.savez(f, u=np.concatenate(rows), t=np.concatenate(cols), shape=[n_users, n_tunes])
    z = np.load(f)
    return z["u"], z["t"], tuple(z["shape"].tolist())


class ListenGraph:
    def __init__(self, test_share=0.1, seed=0):
        u, t, (self.n_users, self.n_tunes) = make_listens()
        rng = np.random.default_rng(seed)
        test = rng.random(len(u)) < test_share
        self.users, self.tunes = u[~test], t[~test]
        self.test_users, self.test_tunes = u[test], t[test]
        self.matrix = sp.csr_matrix((np.ones(len(self.users), np.float32), (self.users, self.tunes)),
                                    shape=(self.n_users, self.n_tunes))
        self.all_pos = [self.matrix[i].nonzero()[1] for i in range(self.n_users)]

    def __len__(self):
        return len(self.users)

    def adjacency(self):
        """D^-1/2 A D^-1/2 of the bipartite graph as a sparse CSR tensor."""
        a = sp.bmat([[None, self.matrix], [self.matrix.T, None]], format="csr", dtype=np.float32)
        d = np.asarray(a.sum(1)).ravel()
        inv = np.where(d > 0, 1 / np.sqrt(np.maximum(d, 1)), 0).astype(np.float32)
        a = (sp.diags(inv) @ a @ sp.diags(inv)).tocsr()
        return torch.sparse_csr_tensor(torch.from_numpy(a.indptr.astype(np.int64)),
                                       torch.from_numpy(a.indices.astype(np.int64)),
                                       torch.from_numpy(a.data.astype(np.float32)), a.shape)


class Propagate(torch.autograd.Function):
    """A @ x with a symmetric A, whose backward pass is A @ grad again."""

    @staticmethod
    def forward(ctx, adj, x):
        ctx.adj = adj
        return adj @ x

    @staticmethod
    def backward(ctx, g):
        return None, ctx.adj @ g


class LightGCN(nn.Module):
    def __init__(self, graph, dim=32, layers=3):
        super().__init__()
        self.n_users, self.layers = graph.n_users, layers
        self.emb = nn.Parameter(0.1 * torch.randn(graph.n_users + graph.n_tunes, dim))
        self.adj = graph.adjacency()

    def propagate(self):
        x = self.emb
        out = x
        for _ in range(self.layers):
            x = Propagate.apply(self.adj, x)
            out = out + x
        out = out / (self.layers + 1)
        return out[:self.n_users], out[self.n_users:]

    def bpr(self, users, pos, neg):
        u, t = self.propagate()
        eu, ep, en = u[users], t[pos], t[neg]
        loss = F.softplus((eu * en).sum(1) - (eu * ep).sum(1)).mean()
        reg = self.emb[users].pow(2).sum() + self.emb[self.n_users + pos].pow(2).sum() \
            + self.emb[self.n_users + neg].pow(2).sum()
        return loss, 0.5 * reg / len(users)


def uniform_sample(graph):
    """One (user, positive, negative) triple for each interaction of the training set."""
    users = np.random.randint(0, graph.n_users, len(graph))
    triples = []
    for user in users:
        pos_for_user = graph.all_pos[user]
        if len(pos_for_user) == 0:
            continue
        pos = pos_for_user[np.random.randint(0, len(pos_for_user))]
        while True:
            neg = np.random.randint(0, graph.n_tunes)
            if neg in pos_for_user:
                continue
            break
        triples.append([user, pos, neg])
    return torch.from_numpy(np.array(triples))


@torch.no_grad()
def recall_at_20(model, graph, n=300):
    users = np.unique(graph.test_users)[:n]
    u, t = model.propagate()
    scores = u[users] @ t.T
    scores[torch.from_numpy(graph.matrix[users].toarray() > 0)] = -1e9
    top = scores.topk(20).indices.numpy()
    hit = [np.isin(graph.test_tunes[graph.test_users == user], row).mean() for user, row in zip(users, top)]
    return float(np.mean(hit))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--dim", type=int, default=32)
    ap.add_argument("--layers", type=int, default=3)
    ap.add_argument("--batch", type=int, default=4096)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--decay", type=float, default=1e-4)
    ap.add_argument("--epochs", type=int, default=300)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(2020)
    np.random.seed(2020)

    graph = ListenGraph()
    log.info("%d listeners, %d tunes, %d interactions", graph.n_users, graph.n_tunes, len(graph))
    model = LightGCN(graph, args.dim, args.layers)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(args.epochs):
        t0, total, n = time.time(), 0.0, 0
        triples = uniform_sample(graph)
        triples = triples[torch.randperm(len(triples))]
        for users, pos, neg in (b.unbind(1) for b in triples.split(args.batch)):
            loss, reg = model.bpr(users, pos, neg)
            opt.zero_grad()
            (loss + args.decay * reg).backward()
            opt.step()
            total, n = total + loss.item(), n + 1
        log.info("epoch %d  bpr %.4f  %d steps in %.1f s", epoch, total / n, n, time.time() - t0)
        if epoch % 10 == 9:
            log.info("recall@20 %.4f", recall_at_20(model, graph))
    torch.save(model.state_dict(), DATA / "model.pt")


if __name__ == "__main__":
    main()
