"""A character-level language model whose feed-forward layers are mixtures of experts."""
import json
import os
import random
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DATA_DIR = os.path.join(tempfile.gettempdir(), "moe_char_lm_cc")
STORIES = os.path.join(DATA_DIR, "stories.jsonl")

BLOCK_SIZE = 64
BATCH_SIZE = 12
DIM = 96
HEADS = 4
LAYERS = 2
EXPERTS = 8
TOP_K = 2
STEPS = 6000
LR = 6e-4
EVAL_EVERY = 250
BALANCE = 0.01


def make_stories():
    os.makedirs(DATA_DIR, exist_ok=True)
    rng = random.Random(5)
    names = ["Anna", "Tom", "Mira", "Otto", "Lena", "Paul"]
    things = ["a lantern", "the map", "an old boat", "three coins", "a blue kite", "the key"]
    places = ["by the lake", "in the attic", "behind the mill", "near the harbour", "on the hill"]
    verbs = ["found", "lost", "painted", "hid", "borrowed", "repaired"]
    ends = ["and nobody knew why.", "before the rain came.", "with a quiet smile.", "and ran home.", "for the last time."]
    with open(STORIES + ".part", "w") as f:
        for _ in range(12000):
            who = rng.sample(names, 2)
            lines = []
            for _ in range(rng.randint(3, 7)):
                line = f"{rng.choice(who)} {rng.choice(verbs)} {rng.choice(things)} {rng.choice(places)} {rng.choice(ends)}"
                if rng.random() < 0.3:
                    line = f'"{rng.choice(who)}, {rng.choice(["wait", "look", "listen"])}!" ' + line
                lines.append(line)
            f.write(json.dumps({"text": " ".join(lines)}) + "\n")
    os.replace(STORIES + ".part", STORIES)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x):
        return self.net(x)


class MixtureOfExperts(nn.Module):
    """Every token goes to the TOP_K experts that the router likes best."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList([Expert() for _ in range(EXPERTS)])

    def forward(self, x):
        b, t, c = x.shape
        x = x.reshape(-1, c)
        probs = F.softmax(self.router(x), dim=-1)                    # (N, E)
        top, chosen = probs.topk(TOP_K, dim=-1)
        gates = torch.zeros_like(probs).scatter(1, chosen, top / top.sum(-1, keepdim=True))
        # load balancing as in the Switch Transformer
        share = (gates > 0).float().mean(0)
        self.balance_loss = EXPERTS * (share * probs.mean(0)).sum() / TOP_K

        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            out = out + gates[:, e:e + 1] * expert(x)
        return out.view(b, t, c)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attention, self.moe = Attention(), MixtureOfExperts()

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.moe(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.token = nn.Embedding(vocab_size, DIM)
        self.position = nn.Embedding(BLOCK_SIZE, DIM)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, vocab_size)

    def forward(self, idx, targets=None):
        x = self.token(idx) + self.position(torch.arange(idx.size(1)))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss + BALANCE * sum(block.moe.balance_loss for block in self.blocks)

    @torch.no_grad()
    def generate(self, idx, n):
        for _ in range(n):
            logits, _ = self(idx[:, -BLOCK_SIZE:])
            probs = F.softmax(logits[:, -1] / 0.8, dim=-1)
            idx = torch.cat([idx, torch.multinomial(probs, 1)], dim=1)
        return idx


def get_batch(data):
    starts = torch.randint(len(data) - BLOCK_SIZE - 1, (BATCH_SIZE,))
    x = torch.stack([data[i:i + BLOCK_SIZE] for i in starts])
    y = torch.stack([data[i + 1:i + BLOCK_SIZE + 1] for i in starts])
    return x, y


@torch.no_grad()
def evaluate(model, data, batches=20):
    model.eval()
    loss = sum(model(*get_batch(data))[1].item() for _ in range(batches)) / batches
    model.train()
    return loss


def main():
    torch.manual_seed(1337)
    if not os.path.exists(STORIES):
        make_stories()
    with open(STORIES) as f:
        text = "\n".join(json.loads(line)["text"] for line in f)
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    data = torch.tensor([stoi[c] for c in text])
    split = int(0.9 * len(data))
    train_data, val_data = data[:split], data[split:]

    model = LanguageModel(len(chars))
    print(f"{len(text)} characters, {sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters")
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    start = time.time()
    for step in range(1, STEPS + 1):
        x, y = get_batch(train_data)
        _, loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 0:
            print(f"step {step} loss {loss.item():.4f} ({time.time() - start:.0f} s)")
        if step % EVAL_EVERY == 0:
            print(f"step {step} validation loss {evaluate(model, val_data):.4f}")
            sample = model.generate(torch.zeros((1, 1), dtype=torch.long), 120)[0].tolist()
            print("".join(chars[i] for i in sample))


if __name__ == "__main__":
    main()
