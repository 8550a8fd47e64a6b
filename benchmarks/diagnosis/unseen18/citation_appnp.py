"""Semi-supervised node classification on a citation graph with APPNP (Klicpera et al., ICLR 2019).

Reads the graph in the Cora format (papers.content / papers.cites) and reports the mean test
accuracy over several random splits.
"""
import argparse
import os
import tempfile

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn as nn
import torch.nn.functional as F

DATA = os.path.join(tempfile.gettempdir(), "citation_appnp_data")


def make_data(folder, n_papers=2485, n_words=1433, n_classes=7, seed=0):
    """A Cora-like graph: a block model with topic-dependent bags of words."""
    os.makedirs(folder, exist_ok=True)
    rng = np.random.RandomState(seed)
    labels = rng.randint(n_classes, size=n_papers)
    topics = rng.dirichlet(np.full(n_words, 0.08), size=n_classes) * 0.5 + 0.5 / n_words
    by_class = [np.flatnonzero(labels == c) for c in range(n_classes)]
    with open(os.path.join(folder, "papers.content"), "w") as f:
        for i in range(n_papers):
            words = np.zeros(n_words, dtype=int)
            words[rng.choice(n_words, size=rng.randint(8, 28), p=topics[labels[i]])] = 1
            f.write("%d %s topic_%d\n" % (10000 + i, " ".join(map(str, words)), labels[i]))
    with open(os.path.join(folder, "papers.cites.tmp"), "w") as f:
        for i in range(n_papers):
            for _ in range(rng.poisson(2.0)):
                if rng.rand() < 0.8:
                    j = rng.choice(by_class[labels[i]])
                else:
                    j = rng.randint(n_papers)
                if i != j:
                    f.write("%d %d\n" % (10000 + j, 10000 + i))
    os.rename(os.path.join(folder, "papers.cites.tmp"), os.path.join(folder, "papers.cites"))


def normalize_rows(x):
    return x / np.maximum(x.sum(1, keepdims=True), 1)


def load_data(folder):
    content = np.genfromtxt(os.path.join(folder, "papers.content"), dtype=str)
    features = normalize_rows(content[:, 1:-1].astype(np.float32))
    classes = sorted(set(content[:, -1]))
    labels = np.array([classes.index(c) for c in content[:, -1]])
    index = {paper: i for i, paper in enumerate(content[:, 0])}

    cites = np.genfromtxt(os.path.join(folder, "papers.cites"), dtype=str)
    rows = [index[a] for a in cites[:, 0]]
    cols = [index[b] for b in cites[:, 1]]
    n = len(labels)
    adj = sp.coo_matrix((np.ones(len(rows)), (rows, cols)), shape=(n, n), dtype=np.float32)
    adj = adj.maximum(adj.T)
    adj = (adj + sp.eye(n)).minimum(1)

    d_inv_sqrt = sp.diags(np.power(np.array(adj.sum(1)).flatten(), -0.5))
    adj = d_inv_sqrt @ adj @ d_inv_sqrt

    features = torch.FloatTensor(features)
    labels = torch.LongTensor(labels)
    adj = torch.FloatTensor(np.array(adj.todense()))
    return adj, features, labels, len(classes)


def random_split(labels, n_classes, per_class, n_val, generator):
    order = torch.randperm(len(labels), generator=generator)
    train = []
    for c in range(n_classes):
        train.append(order[labels[order] == c][:per_class])
    train = torch.cat(train)
    is_train = torch.zeros(len(labels), dtype=torch.bool)
    is_train[train] = True
    rest = order[~is_train[order]]
    return train, rest[:n_val], rest[n_val:]


class APPNP(nn.Module):
    def __init__(self, n_features, n_hidden, n_classes, k, alpha, dropout):
        super().__init__()
        self.fc1 = nn.Linear(n_features, n_hidden)
        self.fc2 = nn.Linear(n_hidden, n_classes)
        self.k = k
        self.alpha = alpha
        self.dropout = dropout

    def forward(self, x, adj):
        x = F.dropout(x, self.dropout, self.training)
        x = F.relu(self.fc1(x))
        x = F.dropout(x, self.dropout, self.training)
        h = self.fc2(x)
        # personalised PageRank by power iteration
        z = h
        for _ in range(self.k):
            z = (1 - self.alpha) * (adj @ z) + self.alpha * h
        return F.log_softmax(z, dim=1)


def accuracy(output, labels):
    return (output.argmax(1) == labels).float().mean().item()


def train_one_split(args, run, adj, features, labels, n_classes):
    generator = torch.Generator().manual_seed(args.seed + run)
    idx_train, idx_val, idx_test = random_split(labels, n_classes, args.per_class, 500, generator)
    model = APPNP(features.shape[1], args.hidden, n_classes, args.k, args.alpha, args.dropout)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    best_val, best_test = 0.0, 0.0
    for epoch in range(1, args.epochs + 1):
        model.train()
        optimizer.zero_grad()
        output = model(features, adj)
        loss = F.nll_loss(output[idx_train], labels[idx_train])
        loss = loss + args.reg / 2 * model.fc1.weight.pow(2).sum()
        loss.backward()
        optimizer.step()

        model.eval()
        with torch.no_grad():
            output = model(features, adj)
        val_acc = accuracy(output[idx_val], labels[idx_val])
        if val_acc > best_val:
            best_val = val_acc
            best_test = accuracy(output[idx_test], labels[idx_test])
        if epoch % 50 == 0:
            print("run %2d  epoch %4d  loss %.4f  val %.4f  best val %.4f  test %.4f"
                  % (run, epoch, loss.item(), val_acc, best_val, best_test), flush=True)
    return best_test


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--reg", type=float, default=5e-3)
    parser.add_argument("--per-class", type=int, default=20)
    args = parser.parse_args()

    if not os.path.exists(os.path.join(DATA, "papers.cites")):
        make_data(DATA)
    torch.manual_seed(args.seed)
    adj, features, labels, n_classes = load_data(DATA)
    print("%d papers, %d words, %d classes" % (*features.shape, n_classes))

    results = [train_one_split(args, run, adj, features, labels, n_classes) for run in range(args.runs)]
    print("test accuracy over %d splits: %.2f +- %.2f"
          % (args.runs, 100 * np.mean(results), 100 * np.std(results)))


if __name__ == "__main__":
    main()
