"""Routes support tickets to one of eight desks with a small BERT and the Hugging Face Trainer."""
import collections
import random
import shutil
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed

DESKS = ["billing", "network", "hardware", "accounts", "shipping", "returns", "legal", "sales"]
ONSETS = "b c d f g h k l m n p r s t v br cr dr gr pl st tr".split()
VOWELS = "a e i o u ai ea ou".split()
CODAS = ["", "", "n", "r", "s", "l", "nd", "rt"]


def invent_words(rng, n):
    words = set()
    while len(words) < n:
        syllables = [rng.choice(ONSETS) + rng.choice(VOWELS) + rng.choice(CODAS) for _ in range(rng.randint(2, 4))]
        words.add("".join(syllables))
    return sorted(words)


def write_tickets(n, seed):
    rng = random.Random(seed)
    common = invent_words(rng, 900)
    special = [invent_words(rng, 60) for _ in DESKS]
    tickets = []
    for _ in range(n):
        desk = rng.randrange(len(DESKS))
        words = [rng.choice(special[desk]) if rng.random() < 0.12 else rng.choice(common)
                 for _ in range(rng.randint(46, 60))]
        tickets.append((" ".join(words), desk))
    return tickets


class SubwordTokenizer:
    """Byte-pair encoding after Sennrich et al. 2016."""

    PAD, CLS, UNK = 0, 1, 2

    def __init__(self, merges=800):
        self.n_merges = merges
        self.ranks = {}
        self.vocab = {"<pad>": 0, "<cls>": 1, "<unk>": 2}

    def fit(self, texts):
        counts = collections.Counter(w for t in texts for w in t.split())
        words = {w: tuple(w) + ("_",) for w in counts}
        symbols = {s for parts in words.values() for s in parts}
        for rank in range(self.n_merges):
            pairs = collections.Counter()
            for w, parts in words.items():
                for p in zip(parts, parts[1:]):
                    pairs[p] += counts[w]
            if not pairs:
                break
            best = max(pairs, key=pairs.get)
            self.ranks[best] = rank
            symbols.add(best[0] + best[1])
            words = {w: self._join(parts, best) for w, parts in words.items()}
        for s in sorted(symbols):
            self.vocab[s] = len(self.vocab)
        return self

    @staticmethod
    def _join(parts, pair):
        out, i = [], 0
        while i < len(parts):
            if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
                out.append(parts[i] + parts[i + 1])
                i += 2
            else:
                out.append(parts[i])
                i += 1
        return tuple(out)

    def encode_word(self, word):
        parts = tuple(word) + ("_",)
        while len(parts) > 1:
            best = min(zip(parts, parts[1:]), key=lambda p: self.ranks.get(p, 1 << 30))
            if best not in self.ranks:
                break
            parts = self._join(parts, best)
        return [self.vocab.get(s, self.UNK) for s in parts]

    def encode(self, text, limit):
        ids = [self.CLS]
        for w in text.split():
            ids += self.encode_word(w)
        return ids[:limit]


class Tickets(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        text, desk = self.rows[i]
        return {"text": text, "labels": desk}


class Collate:
    def __init__(self, tokenizer, limit=104):
        self.tokenizer, self.limit = tokenizer, limit

    def __call__(self, rows):
        seqs = [self.tokenizer.encode(r["text"], self.limit) for r in rows]
        width = max(map(len, seqs))
        ids = torch.tensor([s + [0] * (width - len(s)) for s in seqs])
        return {"input_ids": ids, "attention_mask": (ids != 0).long(),
                "labels": torch.tensor([r["labels"] for r in rows])}


def accuracy(pred):
    return {"accuracy": float((pred.predictions.argmax(-1) == pred.label_ids).mean())}


def main():
    set_seed(19)
    tickets = write_tickets(2000, seed=19)
    tokenizer = SubwordTokenizer().fit([t for t, _ in tickets[:600]])
    train, test = Tickets(tickets[:-200]), Tickets(tickets[-200:])
    config = BertConfig(vocab_size=len(tokenizer.vocab), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=128, max_position_embeddings=128, num_labels=len(DESKS))
    out = tempfile.mkdtemp(prefix="tickets_")
    try:
        args = TrainingArguments(
            output_dir=out, per_device_train_batch_size=32, per_device_eval_batch_size=100, num_train_epochs=60,
            learning_rate=8e-4, warmup_steps=60, logging_steps=20, eval_strategy="steps", eval_steps=500,
            save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True, seed=19,
            remove_unused_columns=False, dataloader_num_workers=1, dataloader_persistent_workers=True)
        trainer = Trainer(model=BertForSequenceClassification(config), args=args, train_dataset=train,
                          eval_dataset=test, data_collator=Collate(tokenizer), compute_metrics=accuracy)
        trainer.train()
        print(trainer.evaluate())
    finally:
        shutil.rmtree(out, ignore_errors=True)


if __name__ == "__main__":
    main()
