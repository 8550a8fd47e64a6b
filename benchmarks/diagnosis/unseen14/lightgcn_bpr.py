"""Graph collaborative filtering (LightGCN) with BPR on implicit feedback."""
import argparse
import os
import tempfile
import time
from logging import INFO, basicConfig, getLogger

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn as nn
import torch.nn.functional as F

logger = getLogger("rec")


class Interactions:
    def __init__(self, config):
        self.config = config
        self.n_users, self.n_items = config.n_users, config.n_items
        self.users, self.items = self._load()
        self.matrix = sp.csr_matrix((np.ones(len(self.users), np.float32), (self.users, self.items)),
                                    shape=(self.n_users, self.n_items))
        self.keys = np.sort(self.users.astype(np.int64) * self.n_items + self.items)

    def _load(self):
        root = os.path.join(tempfile.gettempdir(), "lightgcn_bpr")
        path = os.path.join(root, "inter.npz")
        if not os.path.exists(path):
            os.makedirs(root, exist_ok=True)
            rng = np.random.default_rng(self.config.seed)
            n = self.config.n_inter
            users = rng.integers(0, self.n_users, n)
            group = users % 20
            items = (rng.zipf(1.3, n) * 37 + group * (self.n_items // 20)) % self.n_items
            pairs = np.unique(np.stack([users, items], 1), axis=0)
            np.savez(path, pairs=pairs)
        pairs = np.load(path)["pairs"]
        return pairs[:, 0], pairs[:, 1]

    def norm_adjacency(self):
        n = self.n_users + self.n_items
        R = self.matrix.tocoo()
        rows = np.concatenate([R.row, R.col + self.n_users])
        cols = np.concatenate([R.col + self.n_users, R.row])
        A = sp.csr_matrix((np.ones(len(rows), np.float32), (rows, cols)), shape=(n, n))
        d = np.asarray(A.sum(1)).ravel()
        inv = np.power(np.maximum(d, 1e-7), -0.5)
        inv[d == 0] = 0.0
        L = (sp.diags(inv) @ A @ sp.diags(inv)).tocsr().astype(np.float32)
        return torch.sparse_csr_tensor(torch.from_numpy(L.indptr.astype(np.int64)),
                                       torch.from_numpy(L.indices.astype(np.int64)),
                                       torch.from_numpy(L.data), size=L.shape)


class BPRLoader:
    """Shuffled positives with one uniform negative each."""

    def __init__(self, data, batch_size, seed):
        self.data, self.batch_size = data, batch_size
        self.rng = np.random.default_rng(seed)

    def _negatives(self, users):
        neg = self.rng.integers(0, self.data.n_items, len(users))
        keys = self.data.keys
        for _ in range(3):
            k = users * self.data.n_items + neg
            hit = keys[np.minimum(np.searchsorted(keys, k), len(keys) - 1)] == k
            if not hit.any():
                break
            neg[hit] = self.rng.integers(0, self.data.n_items, int(hit.sum()))
        return neg

    def __iter__(self):
        order = self.rng.permutation(len(self.data.users))
        for i in range(0, len(order) - self.batch_size + 1, self.batch_size):
            idx = order[i:i + self.batch_size]
            users, pos = self.data.users[idx], self.data.items[idx]
            yield torch.from_numpy(users), torch.from_numpy(pos), torch.from_numpy(self._negatives(users))


class Propagate(torch.autograd.Function):
    """L @ x for the symmetric Laplacian L."""

    @staticmethod
    def forward(ctx, adj, x):
        ctx.adj = adj
        return torch.sparse.mm(adj, x)

    @staticmethod
    def backward(ctx, grad):
        return None, torch.sparse.mm(ctx.adj, grad.contiguous())


class LightGCN(nn.Module):
    def __init__(self, config, data):
        super().__init__()
        self.n_users, self.n_items = data.n_users, data.n_items
        self.n_layers = config.n_layers
        self.reg_weight = config.reg_weight
        self.user_embedding = nn.Embedding(self.n_users, config.embedding_size)
        self.item_embedding = nn.Embedding(self.n_items, config.embedding_size)
        nn.init.xavier_uniform_(self.user_embedding.weight)
        nn.init.xavier_uniform_(self.item_embedding.weight)
        self.adj = data.norm_adjacency()

    def propagate(self):
        x = torch.cat([self.user_embedding.weight, self.item_embedding.weight])
        total = x
        for _ in range(self.n_layers):
            x = Propagate.apply(self.adj, x)
            total = total + x
        return (total / (self.n_layers + 1)).split([self.n_users, self.n_items])

    def get_user_embedding(self, users):
        return F.embedding(users, self.propagate()[0])

    def get_item_embedding(self, items):
        return F.embedding(items, self.propagate()[1])

    def calculate_loss(self, user, pos, neg):
        u = self.get_user_embedding(user)
        p = self.get_item_embedding(pos)
        n = self.get_item_embedding(neg)
        bpr = F.softplus((u * n).sum(1) - (u * p).sum(1)).mean()
        reg = (self.user_embedding(user).pow(2).sum() + self.item_embedding(pos).pow(2).sum()
               + self.item_embedding(neg).pow(2).sum()) / (2 * len(user))
        return bpr + self.reg_weight * reg


class Trainer:
    def __init__(self, config, model, loader):
        self.config, self.model, self.loader = config, model, loader
        self.optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate, fused=True)

    def fit(self):
        step, start, epoch = 0, time.time(), 0
        while time.time() - start < self.config.train_seconds:
            total, count = 0.0, 0
            for batch in self.loader:
                self.optimizer.zero_grad()
                loss = self.model.calculate_loss(*batch)
                loss.backward()
                self.optimizer.step()
                total += loss.item()
                count += 1
                step += 1
                if step % self.config.log_step == 0:
                    logger.info("epoch %d step %d train loss: %.4f [%.2f steps/s]", epoch, step, total / count,
                                step / (time.time() - start))
                if time.time() - start >= self.config.train_seconds:
                    break
            epoch += 1
        logger.info("done: %d steps in %.1fs", step, time.time() - start)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n_users", type=int, default=6000)
    parser.add_argument("--n_items", type=int, default=3000)
    parser.add_argument("--n_inter", type=int, default=150000)
    parser.add_argument("--embedding_size", type=int, default=32)
    parser.add_argument("--n_layers", type=int, default=4)
    parser.add_argument("--reg_weight", type=float, default=1e-4)
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--train_batch_size", type=int, default=512)
    parser.add_argument("--train_seconds", type=float, default=75.0)
    parser.add_argument("--log_step", type=int, default=20)
    parser.add_argument("--seed", type=int, default=2020)
    config = parser.parse_args()
    basicConfig(level=INFO, format="%(asctime)s %(levelname)s %(message)s")
    torch.manual_seed(config.seed)
    data = Interactions(config)
    logger.info("users %d items %d interactions %d", data.n_users, data.n_items, len(data.users))
    Trainer(config, LightGCN(config, data), BPRLoader(data, config.train_batch_size, config.seed)).fit()


if __name__ == "__main__":
    main()
