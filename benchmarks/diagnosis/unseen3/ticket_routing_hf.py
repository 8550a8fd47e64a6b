"""Route support tickets to teams with a small BERT, Hugging Face Trainer."""
import random
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

MAX_LENGTH = 384
TEAMS = ["billing", "network", "login", "hardware", "shipping", "legal"]

WORDS = {
    "billing": "invoice charge refund card payment amount double vat receipt month".split(),
    "network": "router wifi slow packet vpn drop signal dns cable latency".split(),
    "login": "password reset locked code sms account email verify session token".split(),
    "hardware": "screen battery keyboard fan broken noise usb dock power cracked".split(),
    "shipping": "parcel courier late address track box delivery missing depot customs".split(),
    "legal": "contract clause gdpr consent terms notice privacy data claim cancel".split(),
}
COMMON = (
    "hello i have a problem with my the since yesterday please help it does not work again and "
    "you told me that this was fixed but now we still see same thing thanks regards team could someone "
    "look at urgent no answer called twice after update before monday very much would like to know why"
).split()


def make_ticket(rng):
    label = rng.randrange(len(TEAMS))
    n = min(MAX_LENGTH - 2, max(6, int(rng.lognormvariate(3.3, 0.6))))
    other = WORDS[rng.choice(TEAMS)]
    words = []
    for _ in range(n):
        r = rng.random()
        pool = WORDS[TEAMS[label]] if r < 0.12 else other if r < 0.18 else COMMON
        words.append(rng.choice(pool))
    return " ".join(words), label


class WordTokenizer:
    def __init__(self):
        vocab = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"] + sorted(set(COMMON).union(*WORDS.values()))
        self.index = {w: i for i, w in enumerate(vocab)}
        self.pad_token_id = 0

    def __len__(self):
        return len(self.index)

    def __call__(self, text, max_length):
        ids = [self.index.get(w, 3) for w in text.split()][: max_length - 2]
        ids = [1] + ids + [2]
        mask = [1] * len(ids) + [0] * (max_length - len(ids))
        ids = ids + [self.pad_token_id] * (max_length - len(ids))
        return {"input_ids": ids, "attention_mask": mask}


class Tickets(Dataset):
    def __init__(self, n, tokenizer, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            text, label = make_ticket(rng)
            self.rows.append({**tokenizer(text, MAX_LENGTH), "labels": label})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    return {k: torch.tensor([r[k] for r in rows]) for k in rows[0]}


class Progress(TrainerCallback):
    def __init__(self, every, batch):
        self.every, self.batch = every, batch
        self.t = time.time()

    def on_train_begin(self, args, state, control, **kw):
        self.t = time.time()

    def on_step_end(self, args, state, control, **kw):
        if state.global_step % self.every == 0:
            now = time.time()
            print(f"step {state.global_step} {self.every * self.batch / (now - self.t):.1f} tickets/s", flush=True)
            self.t = now


def main():
    set_seed(7)
    tokenizer = WordTokenizer()
    train = Tickets(4000, tokenizer, seed=7)
    lengths = [sum(r["attention_mask"]) for r in train.rows]
    print(f"{len(train)} tickets, words: mean {sum(lengths) / len(lengths):.0f} max {max(lengths)}")

    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=96, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=256, max_position_embeddings=MAX_LENGTH, num_labels=len(TEAMS),
    )
    model = BertForSequenceClassification(config)
    args = TrainingArguments(
        output_dir="/tmp/ticket_routing", per_device_train_batch_size=16, num_train_epochs=60,
        learning_rate=5e-4, warmup_steps=100, lr_scheduler_type="linear", weight_decay=0.01,
        logging_steps=50, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=train, data_collator=collate,
        callbacks=[Progress(5, args.per_device_train_batch_size)],
    )
    trainer.train()


if __name__ == "__main__":
    main()
