# MLM pre-training of a small BERT on the dialect transcripts (word-level vocab, before probing)
import argparse
import json
import random
from collections import Counter

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForMaskedLM, get_linear_schedule_with_warmup

PAD, UNK, CLS, SEP, MASK = range(5)


def fake_transcripts(path, n_utt, n_types, seed):
    """zipfian words with sticky topics, so there is something to predict"""
    rng = np.random.default_rng(seed)
    p = 1 / np.arange(1, n_types + 1) ** 1.0
    cdf = np.cumsum(p / p.sum())
    with open(path, "w") as f:
        for i in range(n_utt):
            topic = int(rng.integers(0, 40))
            n = int(rng.integers(70, 140))
            w = np.minimum(np.searchsorted(cdf, rng.random(n)), n_types - 1)
            sticky = rng.random(n) < 0.5
            w[sticky] = (w[sticky] // 40) * 40 + topic
            w = np.minimum(w, n_types - 1)
            f.write(json.dumps({"id": i, "dialect": topic % 5, "text": " ".join(f"w{x}" for x in w)}) + "\n")


class Transcripts(Dataset):
    def __init__(self, path, vocab_size, max_len):
        texts = [json.loads(l)["text"].split() for l in open(path)]
        counts = Counter(w for t in texts for w in t)
        self.vocab = {w: i + 5 for i, (w, _) in enumerate(counts.most_common(vocab_size - 5))}
        self.ids = [[CLS] + [self.vocab.get(w, UNK) for w in t[:max_len - 2]] + [SEP] for t in texts]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i]


class MaskCollator:
    def __init__(self, vocab_size, p=0.15):
        self.vocab_size, self.p = vocab_size, p

    def __call__(self, batch):
        n = max(map(len, batch))
        x = torch.tensor([b + [PAD] * (n - len(b)) for b in batch])
        attn = (x != PAD).long()
        prob = torch.full(x.shape, self.p).masked_fill(x < 5, 0.0)
        picked = torch.bernoulli(prob).bool()
        labels = x.masked_fill(~picked, -100)
        r = torch.rand(x.shape)
        x = torch.where(picked & (r < 0.8), torch.full_like(x, MASK), x)
        x = torch.where(picked & (r > 0.9), torch.randint(5, self.vocab_size, x.shape), x)
        return {"input_ids": x, "attention_mask": attn, "labels": labels}


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="transcripts.jsonl")
    p.add_argument("--vocab_size", type=int, default=12000)
    p.add_argument("--hidden", type=int, default=144)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--batch_size", type=int, default=8)
    p.add_argument("--max_len", type=int, default=128)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--steps", type=int, default=6000)
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def evaluate(model, loader):
    model.eval()
    nll, hits, n = 0.0, 0, 0
    with torch.no_grad():
        for batch in loader:
            logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
            keep = batch["labels"] != -100
            nll += F.cross_entropy(logits[keep], batch["labels"][keep], reduction="sum").item()
            hits += (logits[keep].argmax(-1) == batch["labels"][keep]).sum().item()
            n += keep.sum().item()
    model.train()
    return np.exp(nll / n), hits / n


def main():
    args = get_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    fake_transcripts(args.data, 6000, 30000, args.seed)
    ds = Transcripts(args.data, args.vocab_size, args.max_len)
    held, train = torch.utils.data.random_split(ds, [64, len(ds) - 64])
    collate = MaskCollator(args.vocab_size)
    loader = DataLoader(train, args.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    held_loader = DataLoader(held, args.batch_size, collate_fn=collate)

    cfg = BertConfig(vocab_size=args.vocab_size, hidden_size=args.hidden, num_hidden_layers=args.layers,
                     num_attention_heads=4, intermediate_size=4 * args.hidden, max_position_embeddings=args.max_len)
    model = BertForMaskedLM(cfg)
    decay = [p for p in model.parameters() if p.ndim > 1]
    no_decay = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01},
                                   {"params": no_decay, "weight_decay": 0.0}], lr=args.lr)
    scheduler = get_linear_schedule_with_warmup(optimizer, args.steps // 20, args.steps)

    step = 0
    smooth = None
    model.train()
    while step < args.steps:
        for batch in loader:
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            smooth = loss.item() if smooth is None else 0.98 * smooth + 0.02 * loss.item()
            if step % 20 == 0:
                print(f"{step}/{args.steps} mlm loss {smooth:.4f} lr {scheduler.get_last_lr()[0]:.2e}", flush=True)
            if step % 500 == 0:
                ppl, acc = evaluate(model, held_loader)
                print(f"== held-out ppl {ppl:.1f} acc {acc:.3f}", flush=True)
                model.save_pretrained("mlm_ckpt")
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
