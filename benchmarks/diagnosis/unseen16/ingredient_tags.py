"""Tag quantities, units, foods and preparations in recipe lines, from subword hashes and a bidirectional GRU."""
import json
import os
import random
import tempfile
import zlib

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from datasets import load_dataset
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from torchmetrics.classification import MulticlassF1Score

ROOT = os.path.join(tempfile.gettempdir(), "ingredient_tags")
TAGS = ["O", "QUANTITY", "UNIT", "FOOD", "PREPARATION"]
BUCKETS = 200_000
WIDTH = 64
BATCH_SIZE = 32
EPOCHS = 20


def make_recipes():
    """Recipe lines with misspellings, inflections and brand names, as people type them."""
    path = os.path.join(ROOT, "lines.jsonl")
    if os.path.exists(path):
        return path
    os.makedirs(ROOT, exist_ok=True)
    rng = random.Random(21)
    parts = ["to", "ma", "chi", "pep", "ro", "sal", "vin", "ca", "ber", "lem", "on", "gar", "lic", "bas", "il", "cor",
             "ian", "der", "mus", "hum", "ri", "ce", "al", "mon", "quin", "oa", "fen", "nel", "tur", "nip"]
    foods = sorted({"".join(rng.choices(parts, k=rng.randint(2, 4))) for _ in range(1500)})
    units = "g kg ml l cup cups tbsp tsp pinch slices can cans handful bunch pack".split()
    preparations = "chopped diced sliced minced grated peeled crushed toasted melted halved shredded rinsed".split()
    fillers = "of the fresh large small about or and plus some extra for serving good quality organic".split()

    def typo(word):
        if len(word) < 5 or rng.random() > 0.12:
            return word
        k = rng.randrange(len(word) - 1)
        return word[:k] + word[k + 1] + word[k] + word[k + 2:]

    with open(path + ".part", "w") as f:
        for _ in range(12000):
            words, tags = [], []
            for _ in range(rng.randint(1, 4)):
                pieces = [(rng.choice(["1", "2", "3", "1/2", "250", "400", "0.5", "a"]), 1), (rng.choice(units), 2)]
                pieces += [(rng.choice(fillers), 0) for _ in range(rng.randint(0, 3))]
                pieces += [(typo(rng.choice(foods)), 3) for _ in range(rng.randint(1, 2))]
                if rng.random() < 0.6:
                    pieces += [(",", 0), (typo(rng.choice(preparations)), 4)]
                words += [word for word, _ in pieces]
                tags += [tag for _, tag in pieces]
            f.write(json.dumps({"words": words, "tags": tags}) + "\n")
    os.rename(path + ".part", path)
    return path


def subwords(word):
    """The buckets of a word and of its letter groups of three to five."""
    marked = f"<{word}>"
    groups = [marked]
    for n in (3, 4, 5):
        groups += [marked[k:k + n] for k in range(len(marked) - n + 1)]
    return [zlib.crc32(group.encode()) % BUCKETS for group in groups]


def collate(lines):
    buckets, offsets = [], []
    for line in lines:
        for word in line["words"]:
            offsets.append(len(buckets))
            buckets.extend(subwords(word))
    return {
        "buckets": torch.tensor(buckets),
        "offsets": torch.tensor(offsets),
        "lengths": torch.tensor([len(line["words"]) for line in lines]),
        "tags": pad_sequence([torch.tensor(line["tags"]) for line in lines], batch_first=True, padding_value=-100),
    }


class Tagger(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.subwords = nn.EmbeddingBag(BUCKETS, WIDTH, mode="mean")
        nn.init.normal_(self.subwords.weight, std=0.1)
        self.gru = nn.GRU(WIDTH, hidden, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.2)
        self.head = nn.Linear(2 * hidden, len(TAGS))

    def forward(self, buckets, offsets, lengths):
        words = self.subwords(buckets, offsets)
        lines = pad_sequence(words.split(lengths.tolist()), batch_first=True)
        states, _ = self.gru(self.dropout(lines))
        return self.head(self.dropout(states))


@torch.no_grad()
def evaluate(model, loader):
    score = MulticlassF1Score(num_classes=len(TAGS), average="macro", ignore_index=-100)
    model.eval()
    for batch in loader:
        logits = model(batch["buckets"], batch["offsets"], batch["lengths"])
        score.update(logits.argmax(-1).flatten(), batch["tags"].flatten())
    model.train()
    return score.compute().item()


def main():
    set_seed(6)
    path = make_recipes()
    accelerator = Accelerator(cpu=True)
    lines = load_dataset("json", data_files=path, split="train", cache_dir=os.path.join(ROOT, "cache"))
    parts = lines.train_test_split(test_size=600, seed=1)
    train_loader = DataLoader(parts["train"], batch_size=BATCH_SIZE, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(parts["test"], batch_size=BATCH_SIZE, collate_fn=collate)

    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    model, optimizer = accelerator.prepare(model, optimizer)

    step = 0
    for epoch in range(EPOCHS):
        for batch in train_loader:
            logits = model(batch["buckets"], batch["offsets"], batch["lengths"])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["tags"].flatten(), ignore_index=-100)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            if step % 50 == 0:
                accelerator.print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        accelerator.print(f"epoch {epoch}: macro F1 {evaluate(model, test_loader):.4f}")
        accelerator.save(accelerator.unwrap_model(model).state_dict(), os.path.join(ROOT, "tagger.pt"))


if __name__ == "__main__":
    main()
