"""
Probability of default for consumer loans.

Started as a sklearn ColumnTransformer + MLPClassifier pipeline, now a small
torch network with embeddings for the categoricals.
"""
import logging
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("loandefault")

RANDOM_STATE = 42
N_LOANS = 60_000
BATCH_SIZE = 256
EPOCHS = 20
DATA = Path(tempfile.gettempdir()) / "loandefault"

NUMERIC = ["amount", "term", "rate", "income", "dti", "age", "employment_years",
           "open_accounts", "delinquencies", "utilisation", "inquiries"]
CATEGORICAL = ["purpose", "home", "region", "channel", "grade"]
TARGET = "default"


def make_loans() -> pd.DataFrame:
    rng = np.random.default_rng(RANDOM_STATE)
    n = N_LOANS
    df = pd.DataFrame({
        "amount": rng.lognormal(9, 0.6, n).round(-2),
        "term": rng.choice([24, 36, 48, 60], n),
        "income": rng.lognormal(10.4, 0.5, n).round(),
        "age": rng.integers(19, 80, n),
        "employment_years": rng.exponential(6, n).round(1),
        "open_accounts": rng.poisson(6, n),
        "delinquencies": rng.poisson(0.3, n),
        "utilisation": rng.beta(2, 3, n),
        "inquiries": rng.poisson(0.8, n),
        "purpose": rng.choice(["car", "debt", "house", "medical", "other", "wedding"], n),
        "home": rng.choice(["own", "rent", "mortgage"], n, p=[0.2, 0.45, 0.35]),
        "region": rng.choice([f"R{i:02d}" for i in range(40)], n),
        "channel": rng.choice(["branch", "web", "broker"], n),
    })
    df["dti"] = 12 * df.amount / df.term / df.income + rng.gamma(2, 0.08, n)
    score = (1.8 * df.dti + 0.7 * df.delinquencies + 1.4 * df.utilisation
             + 0.2 * df.inquiries - 0.03 * df.employment_years
             + 0.3 * (df.channel == "broker") + 0.3 * (df.home == "rent"))
    df["rate"] = 4 + 3 * score + rng.normal(0, 1.5, n)
    df["grade"] = pd.qcut(score + rng.normal(0, 0.8, n), 7, labels=list("ABCDEFG")).astype(str)
    p = 1 / (1 + np.exp(-(score - score.mean()) * 1.5 + 1.8))
    df[TARGET] = (rng.random(n) < p).astype(int)
    return df


def load_loans() -> pd.DataFrame:
    DATA.mkdir(parents=True, exist_ok=True)
    file = DATA / "loans.parquet"
    if not file.exists():
        make_loans().to_parquet(file)
    return pd.read_parquet(file)


class LoanDataset(Dataset):
    def __init__(self, df: pd.DataFrame):
        self.df = df.reset_index(drop=True)

    def __len__(self):
        return len(self.df)

    def __getitem__(self, i):
        row = self.df.iloc[i]
        x_num = torch.tensor(row[NUMERIC].to_numpy(dtype="float32"))
        x_cat = torch.tensor(row[CATEGORICAL].to_numpy(dtype="int64"))
        y = torch.tensor(row[TARGET], dtype=torch.float32)
        return x_num, x_cat, y


class DefaultNet(nn.Module):
    def __init__(self, cardinalities, n_numeric, hidden=(256, 128)):
        super().__init__()
        self.embeddings = nn.ModuleList(
            [nn.Embedding(c, min(16, (c + 1) // 2)) for c in cardinalities])
        width = n_numeric + sum(e.embedding_dim for e in self.embeddings)
        layers = []
        for h in hidden:
            layers += [nn.Linear(width, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Dropout(0.2)]
            width = h
        self.mlp = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, x_num, x_cat):
        emb = [e(x_cat[:, k]) for k, e in enumerate(self.embeddings)]
        return self.mlp(torch.cat([x_num] + emb, dim=1)).squeeze(1)


def predict_proba(model, loader):
    model.eval()
    p, y = [], []
    with torch.no_grad():
        for x_num, x_cat, target in loader:
            p.append(torch.sigmoid(model(x_num, x_cat)).numpy())
            y.append(target.numpy())
    return np.concatenate(y), np.concatenate(p)


def main():
    torch.manual_seed(RANDOM_STATE)
    df = load_loans()
    log.info("%d loans, default rate %.3f", len(df), df[TARGET].mean())

    train, test = train_test_split(df, test_size=0.1, stratify=df[TARGET],
                                   random_state=RANDOM_STATE)
    train, test = train.copy(), test.copy()
    scaler = StandardScaler().fit(train[NUMERIC])
    encoder = OrdinalEncoder(dtype=np.int64).fit(train[CATEGORICAL])
    for part in (train, test):
        part[NUMERIC] = scaler.transform(part[NUMERIC])
        part[CATEGORICAL] = encoder.transform(part[CATEGORICAL])

    train_loader = DataLoader(LoanDataset(train), batch_size=BATCH_SIZE, shuffle=True)
    test_loader = DataLoader(LoanDataset(test), batch_size=1024)

    model = DefaultNet([len(c) for c in encoder.categories_], len(NUMERIC))
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)

    for epoch in range(EPOCHS):
        model.train()
        losses = []
        for step, (x_num, x_cat, y) in enumerate(train_loader):
            optimizer.zero_grad()
            loss = criterion(model(x_num, x_cat), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step % 50 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, np.mean(losses[-50:]))
        y_true, y_prob = predict_proba(model, test_loader)
        log.info("epoch %d loss %.4f test AUC %.4f", epoch, np.mean(losses),
                 roc_auc_score(y_true, y_prob))


if __name__ == "__main__":
    main()
