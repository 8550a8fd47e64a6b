#!/usr/bin/env python
# DistMult (Yang et al., ICLR 2015) for link prediction on a toy knowledge graph.
#   score(s, r, o) = <e_s, w_r, e_o>
# Trained with Adagrad and sampled negatives like in Trouillon et al.
import argparse
import logging
import pathlib
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("distmult")


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--entities", type=int, default=50_000)
    p.add_argument("--relations", type=int, default=40)
    p.add_argument("--triples", type=int, default=400_000)
    p.add_argument("--dim", type=int, default=100)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--negatives", type=int, default=8)
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--reg", type=float, default=1e-3)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


def make_graph(args):
    """Entities live in latent clusters, every relation maps cluster -> cluster."""
    folder = pathlib.Path(tempfile.gettempdir()) / "distmult_kg"
    folder.mkdir(exist_ok=True)
    path = folder / f"triples_{args.entities}_{args.relations}_{args.triples}.npy"
    if path.exists():
        return np.load(path)
    rng = np.random.default_rng(args.seed)
    n_clusters = 200
    cluster = rng.integers(0, n_clusters, args.entities)
    order = np.argsort(cluster, kind="stable")
    start = np.searchsorted(cluster[order], np.arange(n_clusters + 1))
    target = np.stack([rng.permutation(n_clusters) for _ in range(args.relations)])
    s = rng.integers(0, args.entities, args.triples)
    r = rng.integers(0, args.relations, args.triples)
    c = target[r, cluster[s]]
    lo, hi = start[c], start[c + 1]
    o = order[lo + (rng.random(args.triples) * (hi - lo)).astype(np.int64)]
    triples = np.stack([s, r, o], axis=1).astype(np.int64)
    np.save(path, triples)
    return triples


class DistMult(nn.Module):
    def __init__(self, n_ent, n_rel, dim):
        super().__init__()
        self.ent = nn.Embedding(n_ent, dim)
        self.rel = nn.Embedding(n_rel, dim)
        nn.init.xavier_normal_(self.ent.weight)
        nn.init.xavier_normal_(self.rel.weight)

    def forward(self, s, r, o, neg):
        e_s, w_r, e_o, e_n = self.ent(s), self.rel(r), self.ent(o), self.ent(neg)
        q = e_s * w_r                                        # (B, d)
        pos = (q * e_o).sum(-1, keepdim=True)                # (B, 1)
        negs = torch.bmm(e_n, q.unsqueeze(-1)).squeeze(-1)   # (B, K)
        l2 = e_s.pow(2).sum(-1) + w_r.pow(2).sum(-1) + e_o.pow(2).sum(-1)
        return torch.cat([pos, negs], dim=1), l2.mean()

    @torch.no_grad()
    def rank(self, s, r, o):
        scores = (self.ent(s) * self.rel(r)) @ self.ent.weight.t()
        true = scores.gather(1, o[:, None])
        return (scores > true).sum(1) + 1


def evaluate(model, triples):
    ranks = []
    for chunk in triples.split(50):
        ranks.append(model.rank(*chunk.unbind(1)))
    ranks = torch.cat(ranks).float()
    return (1 / ranks).mean().item(), (ranks <= 10).float().mean().item()


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    triples = torch.from_numpy(make_graph(args))
    triples = triples[torch.randperm(len(triples))]
    valid, train = triples[:500], triples[500:]
    log.info("train %d  valid %d  entities %d", len(train), len(valid), args.entities)

    model = DistMult(args.entities, args.relations, args.dim)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=args.lr)
    loader = DataLoader(TensorDataset(train), batch_size=args.batch, shuffle=True)

    step = 0
    for epoch in range(args.epochs):
        running = 0.0
        for (batch,) in loader:
            s, r, o = batch.unbind(1)
            neg = torch.randint(args.entities, (len(s), args.negatives))
            scores, l2 = model(s, r, o, neg)
            target = torch.zeros_like(scores)
            target[:, 0] = 1.0
            loss = F.binary_cross_entropy_with_logits(scores, target) + args.reg * l2
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
            step += 1
            if step % 100 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, running / 100)
                running = 0.0
        mrr, hits = evaluate(model, valid)
        log.info("epoch %d  MRR %.4f  hits@10 %.4f", epoch, mrr, hits)


if __name__ == "__main__":
    main()
