"""Assign finding codes (multi-label) to radiology report impressions.

Reports are templated sentences; the impression section is cut to at most 64 tokens.
"""
import math
import random

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

SEED = 5
MAX_TOKENS = 64
N_REPORTS = 6000
BATCH = 24
EPOCHS = 60
D_MODEL = 160
LR = 6e-4

FINDINGS = {
    "effusion": ["small left pleural effusion", "bilateral pleural effusions", "blunted costophrenic angle"],
    "nodule": ["pulmonary nodule in the right upper lobe", "solid nodule measuring 8 mm", "rounded opacity"],
    "pneumonia": ["consolidation in the lower lobe", "air bronchograms", "airspace opacity suggests infection"],
    "cardiomegaly": ["enlarged cardiac silhouette", "cardiothoracic ratio is increased", "mild cardiomegaly"],
    "pneumothorax": ["small apical pneumothorax", "visible pleural line", "absent lung markings at the apex"],
    "fracture": ["healing rib fracture", "compression deformity of T8", "displaced clavicular fracture"],
    "edema": ["interstitial edema", "kerley b lines are seen", "perihilar haziness"],
    "device": ["endotracheal tube in place", "right central line tip in the svc", "pacemaker leads unchanged"],
}
FILLER = [
    "comparison is made with the prior examination", "no acute osseous abnormality", "clinical correlation is advised",
    "the mediastinal contours are stable", "follow up imaging is recommended", "the upper abdomen is unremarkable",
    "the trachea is midline", "soft tissues are within normal limits", "findings were discussed with the referring team",
    "technique is limited by patient motion", "no free air under the diaphragm", "hila are normal in size",
]
CODES = list(FINDINGS)


def write_report(rng):
    present = [c for c in CODES if rng.random() < 0.25]
    sentences = [rng.choice(FINDINGS[c]) for c in present]
    absent = [c for c in CODES if c not in present]
    sentences += ["no evidence of " + rng.choice(FINDINGS[c]) for c in rng.sample(absent, min(2, len(absent)))]
    target = rng.randint(56, MAX_TOKENS - 1)
    while sum(len(s.split()) + 1 for s in sentences) < target:
        sentences.append(rng.choice(FILLER))
    rng.shuffle(sentences)
    words = " . ".join(sentences).split()
    labels = [float(c in present) for c in CODES]
    return words[:target], labels


class ReportDataset(Dataset):
    def __init__(self, reports, vocab):
        self.reports = reports
        self.vocab = vocab

    def __len__(self):
        return len(self.reports)

    def __getitem__(self, i):
        words, labels = self.reports[i]
        ids = [1] + [self.vocab[w] for w in words]
        return torch.tensor(ids), torch.tensor(labels)


def collate(batch):
    ids, labels = zip(*batch)
    ids = pad_sequence(ids, batch_first=True, padding_value=0)
    return ids, ids == 0, torch.stack(labels)


class ReportEncoder(nn.Module):
    def __init__(self, vocab_size, n_codes, layers=3, heads=4):
        super().__init__()
        self.tok = nn.Embedding(vocab_size, D_MODEL, padding_idx=0)
        pos = torch.arange(MAX_TOKENS).unsqueeze(1)
        div = torch.exp(torch.arange(0, D_MODEL, 2) * (-math.log(10000.0) / D_MODEL))
        pe = torch.zeros(MAX_TOKENS, D_MODEL)
        pe[:, 0::2], pe[:, 1::2] = torch.sin(pos * div), torch.cos(pos * div)
        self.register_buffer("pe", pe)
        layer = nn.TransformerEncoderLayer(D_MODEL, heads, 4 * D_MODEL, dropout=0.1, batch_first=True,
                                           activation="gelu", norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(D_MODEL)
        self.query = nn.Parameter(torch.randn(n_codes, D_MODEL) * 0.02)
        self.out = nn.Linear(D_MODEL, 1)

    def forward(self, ids, pad):
        x = self.tok(ids) * math.sqrt(D_MODEL) + self.pe[: ids.shape[1]]
        x = self.norm(self.encoder(x, src_key_padding_mask=pad))
        # one attention query per code over the tokens
        score = torch.einsum("cd,bld->bcl", self.query, x) / math.sqrt(D_MODEL)
        score = score.masked_fill(pad.unsqueeze(1), float("-inf")).softmax(-1)
        return self.out(torch.einsum("bcl,bld->bcd", score, x)).squeeze(-1)


@torch.no_grad()
def micro_f1(model, loader):
    model.eval()
    tp = fp = fn = 0.0
    for ids, pad, y in loader:
        p = (model(ids, pad) > 0).float()
        tp += (p * y).sum().item()
        fp += (p * (1 - y)).sum().item()
        fn += ((1 - p) * y).sum().item()
    return 2 * tp / max(2 * tp + fp + fn, 1.0)


def main():
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)

    rng = random.Random(SEED)
    reports = [write_report(rng) for _ in range(N_REPORTS)]
    words = sorted({w for r, _ in reports for w in r})
    vocab = {w: i + 2 for i, w in enumerate(words)}
    cut = int(0.95 * N_REPORTS)
    train_loader = DataLoader(ReportDataset(reports[:cut], vocab), batch_size=BATCH, shuffle=True,
                              collate_fn=collate, num_workers=0, drop_last=True)
    val_loader = DataLoader(ReportDataset(reports[cut:], vocab), batch_size=2 * BATCH, collate_fn=collate)

    model = ReportEncoder(len(vocab) + 2, len(CODES))
    opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=LR, total_steps=EPOCHS * len(train_loader), pct_start=0.05)
    loss_fn = nn.BCEWithLogitsLoss()

    for epoch in range(EPOCHS):
        model.train()
        bar = tqdm(train_loader, desc=f"epoch {epoch}", mininterval=2.0, ncols=90)
        running = 0.0
        for i, (ids, pad, y) in enumerate(bar):
            loss = loss_fn(model(ids, pad), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            running = 0.98 * running + 0.02 * loss.item() if i else loss.item()
            bar.set_postfix(loss=f"{running:.4f}", lr=f"{sched.get_last_lr()[0]:.1e}")
        print(f"epoch {epoch} loss {running:.4f} val micro-F1 {micro_f1(model, val_loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
