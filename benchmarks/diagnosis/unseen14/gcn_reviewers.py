"""Semi-supervised node classification on a co-review graph with a three-layer GCN."""
import argparse
import logging
import os
import os.path as osp
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--num-nodes", type=int, default=9000)
parser.add_argument("--num-edges", type=int, default=70000)
parser.add_argument("--num-feats", type=int, default=48)
parser.add_argument("--num-classes", type=int, default=12)
parser.add_argument("--hidden", type=int, default=32)
parser.add_argument("--layers", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--epochs", type=int, default=6000)
parser.add_argument("--eval-every", type=int, default=200)
parser.add_argument("--log-every", type=int, default=20)

logging.basicConfig(level=logging.INFO, format="[%(asctime)s] %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger(__name__)


class CoReviewGraph:
    """Undirected graph with homophily; `edge_index` holds each edge in both directions."""

    def __init__(self, root, args):
        path = osp.join(root, f"graph_{args.num_nodes}_{args.num_edges}.pt")
        if not osp.exists(path):
            os.makedirs(root, exist_ok=True)
            torch.save(self.generate(args), path + ".tmp")
            os.replace(path + ".tmp", path)
        data = torch.load(path)
        self.x, self.y = data["x"], data["y"]
        self.edge_index = data["edge_index"]
        self.train_mask, self.val_mask = data["train_mask"], data["val_mask"]
        self.num_nodes = self.x.size(0)

    @staticmethod
    def generate(args):
        rng = np.random.default_rng(3)
        y = rng.integers(0, args.num_classes, args.num_nodes)
        members = [np.flatnonzero(y == c) for c in range(args.num_classes)]
        src = rng.integers(0, args.num_nodes, args.num_edges)
        dst = rng.integers(0, args.num_nodes, args.num_edges)
        same = rng.random(args.num_edges) < 0.6
        for c in range(args.num_classes):
            pick = np.flatnonzero(same & (y[src] == c))
            dst[pick] = rng.choice(members[c], size=len(pick))
        keep = src != dst
        edges = np.stack([np.concatenate([src[keep], dst[keep]]), np.concatenate([dst[keep], src[keep]])])
        edges = np.unique(edges, axis=1)
        edges = edges[:, rng.permutation(edges.shape[1])]
        centers = rng.normal(size=(args.num_classes, args.num_feats))
        x = centers[y] * 0.5 + rng.normal(size=(args.num_nodes, args.num_feats))
        split = rng.random(args.num_nodes)
        return {
            "x": torch.from_numpy(x).float(),
            "y": torch.from_numpy(y),
            "edge_index": torch.from_numpy(edges),
            "train_mask": torch.from_numpy(split < 0.1),
            "val_mask": torch.from_numpy(split > 0.8),
        }


def gcn_norm(edge_index, num_nodes):
    """D^-1/2 (A + I) D^-1/2 as a CSR matrix."""
    loop = torch.arange(num_nodes).expand(2, -1)
    index = torch.cat([edge_index, loop], dim=1)
    adj = torch.sparse_coo_tensor(index, torch.ones(index.size(1)), (num_nodes, num_nodes)).coalesce()
    row, col = adj.indices()
    deg = torch.zeros(num_nodes).index_add_(0, row, adj.values())
    inv = deg.rsqrt()
    value = inv[row] * adj.values() * inv[col]
    return torch.sparse_coo_tensor(adj.indices(), value, adj.shape, is_coalesced=True).to_sparse_csr()


class SymmetricPropagate(torch.autograd.Function):
    """The matrix is its own transpose, so the backward pass is the same product."""

    @staticmethod
    def forward(ctx, adj, x):
        ctx.adj = adj
        return adj @ x

    @staticmethod
    def backward(ctx, grad):
        return None, ctx.adj @ grad


class GCNConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.lin = nn.Linear(in_channels, out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, x, edge_index):
        adj = gcn_norm(edge_index, x.size(0))
        return SymmetricPropagate.apply(adj, self.lin(x)) + self.bias


class GCN(nn.Module):
    def __init__(self, in_channels, hidden, out_channels, layers):
        super().__init__()
        sizes = [in_channels] + [hidden] * (layers - 1) + [out_channels]
        self.convs = nn.ModuleList(GCNConv(a, b) for a, b in zip(sizes, sizes[1:]))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(layers - 1))

    def forward(self, x, edge_index):
        for conv, norm in zip(self.convs, self.norms):
            x = F.relu(norm(conv(x, edge_index)))
        return self.convs[-1](x, edge_index)


def train(model, graph, optimizer):
    model.train()
    optimizer.zero_grad()
    out = model(graph.x, graph.edge_index)
    loss = F.cross_entropy(out[graph.train_mask], graph.y[graph.train_mask])
    loss.backward()
    optimizer.step()
    return loss.item()


@torch.no_grad()
def evaluate(model, graph):
    model.eval()
    pred = model(graph.x, graph.edge_index).argmax(dim=-1)
    hit = pred == graph.y
    return hit[graph.train_mask].float().mean().item(), hit[graph.val_mask].float().mean().item()


def main():
    args = parser.parse_args()
    torch.manual_seed(0)
    graph = CoReviewGraph(osp.join(tempfile.gettempdir(), "gcn_reviewers"), args)
    log.info("%d nodes, %d directed edges", graph.num_nodes, graph.edge_index.size(1))
    model = GCN(args.num_feats, args.hidden, args.num_classes, args.layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=5e-4)
    best, start = 0.0, time.time()
    for epoch in range(1, args.epochs + 1):
        loss = train(model, graph, optimizer)
        if epoch % args.log_every == 0:
            log.info("epoch %d loss %.4f (%.1f epochs/s)", epoch, loss, epoch / (time.time() - start))
        if epoch % args.eval_every == 0:
            train_acc, val_acc = evaluate(model, graph)
            best = max(best, val_acc)
            log.info("epoch %d train %.3f val %.3f best %.3f", epoch, train_acc, val_acc, best)


if __name__ == "__main__":
    main()
