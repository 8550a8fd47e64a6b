import gc
import json
import os
import random
import tempfile
import warnings
from typing import NamedTuple

import pytorch_lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")

DATA_DIR = os.path.join(tempfile.gettempdir(), "case_citator")
N_OPINIONS = 12_000
VOCAB = 8_000
AREAS = ["contract", "tort", "criminal", "tax", "labor", "property", "family", "maritime"]
SEQ = 96


def build_corpus(path, seed=11):
    """Opinions as one JSON line each: token ids, area of law, citations with pinpoints."""
    rng = random.Random(seed)
    with open(path + ".tmp", "w") as f:
        for i in range(N_OPINIONS):
            area = rng.randrange(len(AREAS))
            lo = 1 + area * 600
            toks = [rng.randrange(lo, lo + 1200) if rng.random() < 0.3 else rng.randrange(1, VOCAB)
                    for _ in range(SEQ)]
            cites = [{"case": rng.randrange(N_OPINIONS), "page": rng.randrange(1, 900),
                      "how": rng.choice(["followed", "distinguished", "overruled"])}
                     for _ in range(rng.randint(8, 20))]
            f.write(json.dumps({"id": i, "area": AREAS[area], "year": rng.randint(1890, 2020),
                                "tokens": toks, "cites": cites}) + "\n")
    os.rename(path + ".tmp", path)


class Opinion(NamedTuple):
    id: int
    area: str
    year: int
    tokens: torch.Tensor
    cites: list


class OpinionDataset(Dataset):
    """Whole reporter in memory, the citation graph included."""

    def __init__(self, path):
        self.opinions = []
        with open(path) as f:
            for line in f:
                d = json.loads(line)
                d["tokens"] = torch.tensor(d["tokens"])
                self.opinions.append(Opinion(**d))

    def __len__(self):
        return len(self.opinions)

    def __getitem__(self, i):
        op = self.opinions[i]
        treat = torch.zeros(3)
        for c in op.cites:
            treat[("followed", "distinguished", "overruled").index(c["how"])] += 1
        cited = self.opinions[op.cites[i % len(op.cites)]["case"]]
        return {
            "tokens": op.tokens,
            "cited": cited.tokens,
            "treatment": treat / treat.sum(),
            "area": AREAS.index(op.area),
        }


class Encoder(nn.Module):
    def __init__(self, dim=128, depth=2):
        super().__init__()
        self.emb = nn.Embedding(VOCAB + 1, dim)
        self.pos = nn.Parameter(torch.zeros(SEQ, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, dim * 2, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, x):
        return self.blocks(self.emb(x) + self.pos).mean(1)


class CitatorModule(L.LightningModule):
    def __init__(self, lr=1e-3, dim=128):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = Encoder(dim)
        self.area_head = nn.Linear(dim, len(AREAS))
        self.treat_head = nn.Linear(2 * dim, 3)

    def training_step(self, batch, batch_idx):
        h = self.encoder(torch.cat([batch["tokens"], batch["cited"]]))
        own, cited = h.chunk(2)
        area_loss = F.cross_entropy(self.area_head(own), batch["area"])
        logits = self.treat_head(torch.cat([own, cited], 1))
        treat_loss = -(batch["treatment"] * F.log_softmax(logits, 1)).sum(1).mean()
        loss = area_loss + 0.5 * treat_loss
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


class MemoryCallback(L.Callback):
    """Keeps memory flat on the long runs (we used to get OOM-killed at night)."""

    def __init__(self, interval=1):
        self.interval = interval

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step % self.interval == 0:
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


class PrintLoss(L.Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        if trainer.global_step % 100 == 0:
            print(f"step {trainer.global_step}  loss {float(outputs['loss']):.4f}", flush=True)


if __name__ == "__main__":
    L.seed_everything(5)
    os.makedirs(DATA_DIR, exist_ok=True)
    corpus = os.path.join(DATA_DIR, "opinions.jsonl")
    if not os.path.exists(corpus):
        build_corpus(corpus)

    loader = DataLoader(OpinionDataset(corpus), batch_size=12, shuffle=True, drop_last=True)
    trainer = L.Trainer(
        max_steps=8000,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[MemoryCallback(), PrintLoss()],
    )
    trainer.fit(CitatorModule(), loader)
