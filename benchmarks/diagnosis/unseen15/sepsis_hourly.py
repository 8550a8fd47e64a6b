# Hourly sepsis risk on the ward - training job behind the "model health" dashboard.
#
# 2023-11  GRU over vitals + labs
# 2024-02  masks for missing labs as extra inputs
# 2024-04  auxiliary head: lactate of the next hour
# 2024-07  AUROC / AUPRC of the training batch on the dashboard (Henrik)
# 2024-09  confidence band for both (reviewer 2)

import csv
import json
import pathlib
import tempfile
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.stats import rankdata
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    root: str = str(pathlib.Path(tempfile.gettempdir()) / "sepsis_hourly")
    stays: int = 3000
    hours: int = 48
    vitals: int = 8
    labs: int = 16
    hidden: int = 96
    batch_size: int = 48
    lr: float = 2e-3
    epochs: int = 30
    aux_weight: float = 0.2
    pos_weight: float = 4.0
    n_boot: int = 200
    log_every: int = 20
    seed: int = 1


def simulate(cfg):
    """Latent severity drives vitals, labs and the label; labs are mostly missing."""
    f = pathlib.Path(cfg.root) / "stays.npz"
    if not f.exists():
        f.parent.mkdir(parents=True, exist_ok=True)
        g = np.random.default_rng(0)
        sev = np.cumsum(g.normal(0.01, 0.25, (cfg.stays, cfg.hours)), 1) + g.normal(0, 1, (cfg.stays, 1))
        vit = sev[..., None] * g.normal(0, 0.6, cfg.vitals) + g.normal(0, 1, (cfg.stays, cfg.hours, cfg.vitals))
        lab = sev[..., None] * g.normal(0, 0.9, cfg.labs) + g.normal(0, 0.7, (cfg.stays, cfg.hours, cfg.labs))
        seen = g.random(lab.shape) < 0.15
        y = g.random(sev.shape) < 1 / (1 + np.exp(-(1.4 * sev - 3)))
        np.savez(f, vit=vit.astype("f4"), lab=np.where(seen, lab, np.nan).astype("f4"), y=y.astype("f4"))
    return np.load(f)


class Stays(Dataset):
    def __init__(self, data):
        self.vit, self.lab, self.y = data["vit"], data["lab"], data["y"]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        seen = ~np.isnan(self.lab[i])
        lab = np.where(seen, self.lab[i], 0)
        x = np.concatenate([self.vit[i], lab, seen], 1).astype(np.float32)
        return x, self.y[i], lab[:, 0], seen[:, 0]


class Ward(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.inp = nn.Linear(cfg.vitals + 2 * cfg.labs, cfg.hidden)
        self.gru = nn.GRU(cfg.hidden, cfg.hidden, batch_first=True)
        self.risk = nn.Linear(cfg.hidden, 1)
        self.lactate = nn.Linear(cfg.hidden, 1)

    def forward(self, x):
        h, _ = self.gru(F.gelu(self.inp(x)))
        return self.risk(h).squeeze(-1), self.lactate(h).squeeze(-1)


def auroc(y, s):
    r = rankdata(s)
    n1 = y.sum()
    n0 = len(y) - n1
    if n1 == 0 or n0 == 0:
        return np.nan
    return (r[y == 1].sum() - n1 * (n1 + 1) / 2) / (n1 * n0)


def auprc(y, s):
    o = np.argsort(-s)
    hit = y[o]
    if hit.sum() == 0:
        return np.nan
    prec = np.cumsum(hit) / np.arange(1, len(hit) + 1)
    return (prec * hit).sum() / hit.sum()


def with_band(metric, y, s, n_boot, rng):
    """Value and the 95 % bootstrap interval."""
    vals = []
    for _ in range(n_boot):
        k = rng.integers(0, len(y), len(y))
        vals.append(metric(y[k], s[k]))
    lo, hi = np.nanpercentile(vals, [2.5, 97.5])
    return float(metric(y, s)), float(lo), float(hi)


def batch_report(risk, y, cfg, rng):
    p = torch.sigmoid(risk).flatten().numpy()
    y = y.flatten().numpy()
    rep = {}
    # one value per stay would ignore the hour of onset, so all hours go in
    for name, metric in (("auroc", auroc), ("auprc", auprc)):
        rep[name], rep[name + "_lo"], rep[name + "_hi"] = with_band(metric, y, p, cfg.n_boot, rng)
    rep["brier"] = float(((p - y) ** 2).mean())
    rep["mean_risk"] = float(p.mean())
    return rep


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    loader = DataLoader(Stays(simulate(cfg)), cfg.batch_size, shuffle=True, drop_last=True)
    model = Ward(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    pos_weight = torch.tensor(cfg.pos_weight)

    root = pathlib.Path(cfg.root)
    (root / "config.json").write_text(json.dumps(asdict(cfg), indent=2))
    out = open(root / "dashboard.csv", "w", newline="")
    table = None
    step = 0
    for epoch in range(cfg.epochs):
        for x, y, lact, seen in loader:
            risk, nxt = model(x)
            loss = F.binary_cross_entropy_with_logits(risk, y, pos_weight=pos_weight)
            err = (nxt[:, :-1] - lact[:, 1:]) ** 2 * seen[:, 1:]
            aux = err.sum() / seen[:, 1:].sum().clamp(min=1)
            opt.zero_grad()
            (loss + cfg.aux_weight * aux).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()

            row = {"step": step, "epoch": epoch, "loss": loss.item(), "aux": aux.item()}
            row.update(batch_report(risk.detach(), y, cfg, rng))
            if step % cfg.log_every == 0:
                if table is None:
                    table = csv.DictWriter(out, row.keys())
                    table.writeheader()
                table.writerow(row)
                out.flush()
                print(" ".join(f"{k}={v:.3f}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items()),
                      flush=True)
            step += 1
        torch.save(model.state_dict(), root / "last.pt")


if __name__ == "__main__":
    main()
