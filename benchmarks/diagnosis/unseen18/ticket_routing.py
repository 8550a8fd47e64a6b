"""Route support tickets to the right team. Text classifier, port of our Keras model."""
import json
import re
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.functional import accuracy, f1_score
from tqdm import tqdm

FOLDER = Path(tempfile.gettempdir()) / "ticket_routing"
TEAMS = ["billing", "network", "hardware", "accounts", "software", "shipping", "returns", "security"]
MAX_WORDS = 20000
MAX_LEN = 256
EPOCHS = 25
BATCH = 64


def create_tickets(path, n=24000):
    rng = np.random.default_rng(11)
    syll = ["ba", "cor", "den", "fi", "gra", "hol", "in", "ker", "lo", "mar", "net", "op", "pre", "qui", "ro", "ser", "tu", "ver"]
    words = np.array(["".join(rng.choice(syll, rng.integers(2, 5))) for _ in range(9000)])
    common = 1.0 / np.arange(1, len(words) + 1)
    common /= common.sum()
    team_words = {t: rng.choice(words, 120, replace=False) for t in TEAMS}
    with open(path, "w") as f:
        for i in range(n):
            team = TEAMS[rng.integers(len(TEAMS))]
            # most tickets are a few lines, some people paste the whole mail thread
            length = int(np.clip(rng.lognormal(3.4, 0.65), 5, 400))
            body = rng.choice(words, length, p=common)
            own = rng.random(length) < 0.06
            body[own] = rng.choice(team_words[team], own.sum())
            text = " ".join(body).capitalize() + "."
            label = team if rng.random() > 0.04 else TEAMS[rng.integers(len(TEAMS))]
            f.write(json.dumps({"id": i, "subject": " ".join(body[:4]), "text": text, "team": label}) + "\n")


def tokenize(text):
    return re.findall(r"[a-z0-9']+", text.lower())


def build_vocab(texts):
    counts = Counter()
    for t in texts:
        counts.update(tokenize(t))
    # 0 = padding, 1 = unknown
    return {w: i + 2 for i, (w, _) in enumerate(counts.most_common(MAX_WORDS - 2))}


def texts_to_sequences(texts, vocab):
    return [[vocab.get(w, 1) for w in tokenize(t)] for t in texts]


def pad_sequences(seqs, maxlen):
    out = np.zeros((len(seqs), maxlen), dtype=np.int64)
    for i, s in enumerate(seqs):
        s = s[:maxlen]
        out[i, :len(s)] = s
    return out


class TicketClassifier(nn.Module):
    def __init__(self, n_words, n_classes, emb=96, hidden=96):
        super().__init__()
        self.embedding = nn.Embedding(n_words, emb, padding_idx=0)
        self.drop = nn.Dropout(0.3)
        self.lstm = nn.LSTM(emb, hidden, batch_first=True)
        self.fc = nn.Sequential(nn.Linear(2 * hidden, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, n_classes))

    def forward(self, x):
        mask = (x != 0).unsqueeze(-1)
        h, _ = self.lstm(self.drop(self.embedding(x)))
        mean = (h * mask).sum(1) / mask.sum(1).clamp(min=1)
        mx = h.masked_fill(~mask, -1e4).max(1).values
        return self.fc(torch.cat([mean, mx], dim=1))


class EarlyStopping:
    """Same behaviour as keras.callbacks.EarlyStopping(restore_best_weights=True)."""

    def __init__(self, patience):
        self.patience = patience
        self.best = -1.0
        self.wait = 0
        self.weights = None

    def should_stop(self, score, model):
        if score > self.best:
            self.best = score
            self.wait = 0
            self.weights = {k: v.clone() for k, v in model.state_dict().items()}
            return False
        self.wait += 1
        return self.wait >= self.patience


def predict(model, loader):
    model.eval()
    y_true, y_pred = [], []
    with torch.no_grad():
        for xb, yb in loader:
            y_pred.append(model(xb).argmax(1))
            y_true.append(yb)
    return torch.cat(y_true), torch.cat(y_pred)


def main():
    torch.manual_seed(42)
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "tickets.jsonl"
    if not path.exists():
        create_tickets(path)
    df = pd.read_json(path, lines=True)
    df["full_text"] = df["subject"] + " " + df["text"]
    df["y"], classes = pd.factorize(df["team"], sort=True)
    val_df = df.groupby("team").sample(frac=0.1, random_state=42)
    train_df = df.drop(val_df.index)

    vocab = build_vocab(train_df["full_text"])
    X_train = pad_sequences(texts_to_sequences(train_df["full_text"], vocab), MAX_LEN)
    X_val = pad_sequences(texts_to_sequences(val_df["full_text"], vocab), MAX_LEN)
    print("train", X_train.shape, "val", X_val.shape, "vocab", len(vocab))

    train_dl = DataLoader(TensorDataset(torch.from_numpy(X_train), torch.tensor(train_df["y"].values)),
                          batch_size=BATCH, shuffle=True)
    val_dl = DataLoader(TensorDataset(torch.from_numpy(X_val), torch.tensor(val_df["y"].values)), batch_size=BATCH)

    model = TicketClassifier(len(vocab) + 2, len(classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    loss_fn = nn.CrossEntropyLoss()
    stopper = EarlyStopping(patience=5)

    for epoch in range(EPOCHS):
        model.train()
        total, seen = 0.0, 0
        bar = tqdm(train_dl, desc=f"Epoch {epoch + 1}/{EPOCHS}")
        for xb, yb in bar:
            optimizer.zero_grad()
            loss = loss_fn(model(xb), yb)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item() * len(xb)
            seen += len(xb)
            bar.set_postfix(loss=f"{total / seen:.4f}")
        y_true, y_pred = predict(model, val_dl)
        acc = accuracy(y_pred, y_true, task="multiclass", num_classes=len(classes)).item()
        f1 = f1_score(y_pred, y_true, task="multiclass", num_classes=len(classes), average="macro").item()
        print(f"val_acc {acc:.4f} val_f1 {f1:.4f}")
        if stopper.should_stop(f1, model):
            print("Early stopping")
            break
    model.load_state_dict(stopper.weights)
    torch.save({"model": model.state_dict(), "vocab": vocab, "classes": list(classes)}, FOLDER / "router.pt")


if __name__ == "__main__":
    main()
