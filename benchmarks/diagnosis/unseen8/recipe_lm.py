"""A tiny GPT that writes recipes. Tutorial version: one file, no tricks."""
import math
import os
import random
import re
import tempfile
import time
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

FOLDER = os.path.join(tempfile.gettempdir(), "recipe_lm")
CONTEXT = 96
BATCH_SIZE = 10
EPOCHS = 100

ING = """flour sugar butter salt pepper onion garlic tomato basil rice chicken beef lentils carrot celery cream milk
egg yeast oil vinegar lemon thyme rosemary cumin paprika chili ginger soy honey oats almonds walnuts spinach kale
mushroom potato leek cheese yoghurt beans corn coconut lime cilantro parsley mustard cinnamon vanilla cocoa apple
pear plum peach berry banana pumpkin squash zucchini eggplant fennel dill mint sage saffron turmeric sesame tofu
salmon trout shrimp lamb pork bacon sausage noodles pasta bread quinoa barley couscous""".split()
VERB = "chop slice dice mix stir fold whisk fry roast bake simmer boil grill mash blend season toss rinse drain".split()
TOOL = "bowl pan pot tray dish skillet wok blender oven casserole".split()
UNIT = "cup cups tbsp tsp g kg ml l pinch handful".split()
HOW = "gently quickly until golden|for a while|until soft|over low heat|over high heat|until smooth|well".split("|")


def write_corpus(path, n=6000):
    rnd = random.Random(8)
    with open(path + ".new", "w", encoding="utf-8") as f:
        for _ in range(n):
            start = rnd.randrange(len(ING))
            items = [ING[(start + rnd.randrange(14)) % len(ING)] for _ in range(rnd.randint(4, 8))]
            lines = [f"{items[0].title()} and {items[1]} {rnd.choice(TOOL)}:"]
            lines += [f"{rnd.choice([1, 2, 3, 5, 10, 50, 100, 200, 500])} {rnd.choice(UNIT)} {x}," for x in items]
            for x in items:
                lines.append(f"{rnd.choice(VERB).title()} the {x} in the {rnd.choice(TOOL)}, {rnd.choice(HOW)}.")
            lines.append(f"Serve   with {rnd.choice(items)}!")
            f.write(" ".join(lines) + "\n")
    os.rename(path + ".new", path)


def clean(text):
    text = text.lower()
    text = re.sub(r"([.,:!?])", r" \1 ", text)
    text = re.sub(r"\s+", " ", text)
    return text.strip().split(" ")


class Recipes(Dataset):
    def __init__(self, lines, vocab):
        self.lines = lines
        self.vocab = vocab

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        tokens = []
        while len(tokens) <= CONTEXT:
            tokens += ["<bos>"] + clean(self.lines[i % len(self.lines)])
            i += 1
        ids = []
        for t in tokens[:CONTEXT + 1]:
            ids.append(self.vocab.get(t, 0))
        ids = torch.tensor(ids)
        return ids[:-1], ids[1:]


class Block(nn.Module):
    def __init__(self, d, heads, p=0.1):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.proj = nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.ln2(x))))


class TinyGPT(nn.Module):
    def __init__(self, vocab, d=320, heads=5, depth=3):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.pos = nn.Parameter(torch.zeros(CONTEXT, d))
        self.blocks = nn.Sequential(*[Block(d, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(d)
        self.out = nn.Linear(d, vocab, bias=False)
        nn.init.normal_(self.tok.weight, std=0.02)

    def forward(self, ids):
        return self.out(self.norm(self.blocks(self.tok(ids) + self.pos[:ids.shape[1]])))


@torch.no_grad()
def sample(model, words, vocab, n=25):
    ids = [vocab["<bos>"]]
    for _ in range(n):
        p = model(torch.tensor([ids[-CONTEXT:]]))[0, -1].softmax(-1)
        ids.append(torch.multinomial(p, 1).item())
    return " ".join(words[i] for i in ids[1:])


def lr_at(step):
    if step < 200:
        return step / 200
    return max(0.1, 0.5 * (1 + math.cos(math.pi * min(1.0, step / 20000))))


def main():
    random.seed(0)
    torch.manual_seed(0)
    os.makedirs(FOLDER, exist_ok=True)
    path = os.path.join(FOLDER, "recipes.txt")
    if not os.path.exists(path):
        write_corpus(path)
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    counts = Counter(w for line in lines for w in clean(line))
    words = ["<unk>", "<bos>"] + [w for w, c in counts.most_common() if c > 2]
    vocab = {w: i for i, w in enumerate(words)}
    print(len(lines), "recipes,", len(words), "words")

    loader = DataLoader(Recipes(lines, vocab), batch_size=BATCH_SIZE, shuffle=True, num_workers=0, drop_last=True)
    model = TinyGPT(len(words))
    print(sum(p.numel() for p in model.parameters()) / 1e6, "M parameters")
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
                            lr=6e-4, betas=(0.9, 0.95))
    step, smooth, t0 = 0, None, time.time()
    for epoch in range(EPOCHS):
        for x, y in loader:
            for g in opt.param_groups:
                g["lr"] = 6e-4 * lr_at(step)
            logits = model(x)
            loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
            step += 1
            if step % 10 == 0:
                print(f"step {step} | loss {smooth:.3f} | ppl {math.exp(smooth):.1f} | {time.time() - t0:.0f} s", flush=True)
            if step % 250 == 0:
                print(">>", sample(model, words, vocab), flush=True)


if __name__ == "__main__":
    main()
