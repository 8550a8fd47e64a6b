# Automated essay scoring, six traits (cohesion, syntax, vocabulary, phraseology, grammar, conventions).
# Small BERT-like encoder from scratch + mean pooling, MCRMSE, layerwise setup as in the FB3 notebooks.
import os
import random
import re
import tempfile
import time
from collections import Counter

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertModel, get_cosine_schedule_with_warmup


class CFG:
    path = os.path.join(tempfile.gettempdir(), "essay_scores_aa")
    target_cols = ["cohesion", "syntax", "vocabulary", "phraseology", "grammar", "conventions"]
    n_essays = 1500
    vocab_size = 6000
    max_len = 512
    hidden = 128
    layers = 2
    heads = 4
    epochs = 4
    batch_size = 8
    gradient_accumulation_steps = 2
    max_grad_norm = 1.0
    lr = 3e-4
    weight_decay = 0.01
    n_fold = 4
    trn_fold = [0, 1]
    print_freq = 10
    seed = 42


def seed_everything(seed=42):
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


# ====================================================
# Data
# ====================================================
def make_essays():
    """invented essays: better writers use rarer words, longer sentences, fewer slips"""
    rng = np.random.default_rng(7)
    syl = ["ka", "lo", "mi", "ter", "sun", "pra", "ne", "dor", "vi", "shu", "ben", "al", "qui", "or", "ing", "est"]
    words = list({"".join(rng.choice(syl, rng.integers(1, 5))) for _ in range(9000)})
    rows = []
    for i in range(CFG.n_essays):
        skill = rng.normal(0, 1, 6)
        n_words = int(np.clip(rng.lognormal(5.1, 0.5), 40, 900))
        idx = np.minimum((rng.pareto(1.3 - 0.1 * np.tanh(skill[2]), n_words) * 15).astype(int), len(words) - 1)
        toks = [words[k] for k in idx]
        pos = 0
        while pos < n_words:
            toks[pos] = toks[pos].capitalize() if rng.random() > 0.1 - 0.04 * skill[5] else toks[pos]
            pos += max(3, int(rng.normal(12 + 3 * skill[1], 3)))
            toks[min(pos, n_words) - 1] += "." if rng.random() > 0.1 - 0.04 * skill[4] else ","
        score = np.clip(np.round((3 + skill) * 2) / 2, 1, 5)
        rows.append([f"{i:06X}", " ".join(toks), *score])
    return pd.DataFrame(rows, columns=["text_id", "full_text"] + CFG.target_cols)


def load_train():
    csv = os.path.join(CFG.path, "train.csv")
    if not os.path.exists(csv):
        os.makedirs(CFG.path, exist_ok=True)
        make_essays().to_csv(csv, index=False)
    df = pd.read_csv(csv)
    df["fold"] = np.random.RandomState(CFG.seed).permutation(len(df)) % CFG.n_fold
    return df


class WordTokenizer:
    pad, unk, cls, sep = 0, 1, 2, 3

    def __init__(self, texts, vocab_size):
        counts = Counter(w for t in texts for w in self.split(t))
        self.vocab = {w: i + 4 for i, (w, _) in enumerate(counts.most_common(vocab_size - 4))}

    @staticmethod
    def split(text):
        return re.findall(r"\w+|[^\w\s]", text)

    def __call__(self, text, max_length):
        ids = [self.vocab.get(w, self.unk) for w in self.split(text)][:max_length - 2]
        ids = [self.cls] + ids + [self.sep]
        mask = [1] * len(ids) + [0] * (max_length - len(ids))
        ids = ids + [self.pad] * (max_length - len(ids))
        return {"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)}


class TrainDataset(Dataset):
    def __init__(self, df, tokenizer):
        self.texts = df["full_text"].values
        self.labels = df[CFG.target_cols].values
        self.tokenizer = tokenizer

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, item):
        inputs = self.tokenizer(self.texts[item], CFG.max_len)
        label = torch.tensor(self.labels[item], dtype=torch.float)
        return inputs, label


# ====================================================
# Model
# ====================================================
class MeanPooling(nn.Module):
    def forward(self, last_hidden_state, attention_mask):
        m = attention_mask.unsqueeze(-1).float()
        return (last_hidden_state * m).sum(1) / m.sum(1).clamp(min=1e-9)


class EssayModel(nn.Module):
    def __init__(self):
        super().__init__()
        config = BertConfig(vocab_size=CFG.vocab_size, hidden_size=CFG.hidden, num_hidden_layers=CFG.layers,
                            num_attention_heads=CFG.heads, intermediate_size=CFG.hidden * 4,
                            max_position_embeddings=CFG.max_len)
        self.backbone = BertModel(config, add_pooling_layer=False)
        self.pool = MeanPooling()
        self.fc = nn.Linear(CFG.hidden, len(CFG.target_cols))
        nn.init.constant_(self.fc.bias, 3.0)

    def forward(self, inputs):
        h = self.backbone(**inputs).last_hidden_state
        return self.fc(self.pool(h, inputs["attention_mask"]))


def mcrmse(y, p):
    return float(np.mean(np.sqrt(np.mean((y - p) ** 2, axis=0))))


# ====================================================
# Train loop
# ====================================================
def train_fn(fold, loader, model, criterion, optimizer, scheduler, epoch):
    model.train()
    total, start = 0.0, time.time()
    for step, (inputs, labels) in enumerate(loader):
        loss = criterion(model(inputs), labels)
        total += loss.item()
        (loss / CFG.gradient_accumulation_steps).backward()
        if (step + 1) % CFG.gradient_accumulation_steps == 0:
            grad_norm = nn.utils.clip_grad_norm_(model.parameters(), CFG.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()
        if step > 0 and step % CFG.print_freq == 0:
            print(f"Epoch: [{epoch + 1}][{step}/{len(loader)}] Loss: {total / (step + 1):.4f} "
                  f"Grad: {grad_norm:.3f} LR: {scheduler.get_last_lr()[0]:.2e} Elapsed: {time.time() - start:.0f}s",
                  flush=True)
    return total / len(loader)


@torch.no_grad()
def valid_fn(loader, model):
    model.eval()
    return torch.cat([model(inputs) for inputs, _ in loader]).numpy()


def train_loop(df, fold, tokenizer):
    trn, val = df[df.fold != fold], df[df.fold == fold]
    train_loader = DataLoader(TrainDataset(trn, tokenizer), batch_size=CFG.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(TrainDataset(val, tokenizer), batch_size=CFG.batch_size * 2)
    model = EssayModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=CFG.lr, weight_decay=CFG.weight_decay)
    n_steps = len(train_loader) * CFG.epochs // CFG.gradient_accumulation_steps
    scheduler = get_cosine_schedule_with_warmup(optimizer, int(n_steps * 0.05), n_steps)
    criterion = nn.SmoothL1Loss()
    best, best_pred = np.inf, None
    for epoch in range(CFG.epochs):
        loss = train_fn(fold, train_loader, model, criterion, optimizer, scheduler, epoch)
        pred = valid_fn(valid_loader, model)
        score = mcrmse(val[CFG.target_cols].values, pred)
        print(f"Fold {fold} Epoch {epoch + 1} - train loss: {loss:.4f} MCRMSE: {score:.4f}", flush=True)
        if score < best:
            best, best_pred = score, pred
            torch.save(model.state_dict(), os.path.join(CFG.path, f"essay_fold{fold}_best.pth"))
    return val.index, best_pred


if __name__ == "__main__":
    seed_everything(CFG.seed)
    train = load_train()
    tok = WordTokenizer(train["full_text"], CFG.vocab_size)
    oof = np.zeros((len(train), len(CFG.target_cols)))
    for fold in CFG.trn_fold:
        idx, pred = train_loop(train, fold, tok)
        oof[idx] = pred
    used = train.fold.isin(CFG.trn_fold).values
    print("CV:", mcrmse(train[CFG.target_cols].values[used], oof[used]))
