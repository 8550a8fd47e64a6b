"""Find the passage of a machine manual that answers a question: a small late-interaction retriever trained on pairs."""
import os
import random
import tempfile

import pandas as pd
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, get_linear_schedule_with_warmup

ROOT = os.path.join(tempfile.gettempdir(), "manual_search")
BATCH_SIZE = 24
EPOCHS = 30
QUERY_LENGTH = 16
PASSAGE_LENGTH = 64

VERBS = "replace clean adjust loosen inspect grease calibrate drain refill align mount remove".split()
STATES = "worn noisy hot blocked leaking loose dry stuck cracked dirty bent weak".split()


def make_pairs():
    """Passages about one part of one machine; the question mentions the part and some of the words."""
    if os.path.exists(os.path.join(ROOT, "tokenizer.json")):
        return
    os.makedirs(ROOT, exist_ok=True)
    rng = random.Random(11)
    heads = ["feed", "belt", "oil", "air", "drive", "guide", "chain", "valve", "pump", "gear", "fan", "clutch"]
    tails = ["wheel", "filter", "housing", "spring", "shaft", "sensor", "plate", "bearing", "seal", "ring", "tube"]
    filler = "the a of to with before after until carefully again slowly then both side screw bolt by hand".split()
    rows = []
    for _ in range(12000):
        part = f"{rng.choice(heads)} {rng.choice(tails)}"
        model = f"{rng.choice('abcdefgh')}{rng.randint(100, 199)}"
        verb, state = rng.choice(VERBS), rng.choice(STATES)
        words = rng.choices(filler, k=rng.randint(18, 45))
        for piece in (part, part, model, verb, verb, state):
            words.insert(rng.randrange(len(words)), piece)
        question = rng.choice([
            f"how do i {verb} the {part} on {model}",
            f"{part} is {state} on machine {model} what now",
            f"{model} {part} {state}",
        ])
        rows.append({"question": question, "passage": " ".join(words)})
    pairs = pd.DataFrame(rows)
    pairs.to_parquet(os.path.join(ROOT, "pairs.parquet"))
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=1200, special_tokens=["[PAD]", "[UNK]", "[MASK]"])
    tokenizer.train_from_iterator(pairs["passage"].tolist() + pairs["question"].tolist(), trainer)
    tokenizer.save(os.path.join(ROOT, "tokenizer.json"))


class PairDataset(Dataset):
    def __init__(self, frame):
        self.questions = frame["question"].tolist()
        self.passages = frame["passage"].tolist()

    def __len__(self):
        return len(self.questions)

    def __getitem__(self, index):
        return self.questions[index], self.passages[index]


class PairCollator:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def encode(self, texts, length):
        return self.tokenizer(list(texts), padding=True, truncation=True, max_length=length, return_tensors="pt")

    def __call__(self, pairs):
        questions, passages = zip(*pairs)
        return {"question": self.encode(questions, QUERY_LENGTH), "passage": self.encode(passages, PASSAGE_LENGTH)}


class LateInteraction(nn.Module):
    """Keeps one vector per token; a passage's score is the sum over question tokens of their best match."""

    def __init__(self, vocab_size, width=96, out=48):
        super().__init__()
        self.encoder = BertModel(
            BertConfig(
                vocab_size=vocab_size,
                hidden_size=width,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=2 * width,
                max_position_embeddings=PASSAGE_LENGTH,
            ),
            add_pooling_layer=False,
        )
        self.project = nn.Linear(width, out, bias=False)

    def embed(self, tokens):
        hidden = self.encoder(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).last_hidden_state
        return nn.functional.normalize(self.project(hidden), dim=-1)

    def score(self, questions, question_mask, passages, passage_mask):
        scores = []
        for question, q_mask in zip(questions, question_mask):
            row = []
            for passage, p_mask in zip(passages, passage_mask):
                similarity = question[q_mask.bool()] @ passage[p_mask.bool()].T
                row.append(similarity.max(dim=1).values.sum())
            scores.append(torch.stack(row))
        return torch.stack(scores)

    def forward(self, question, passage):
        return self.score(
            self.embed(question), question["attention_mask"], self.embed(passage), passage["attention_mask"]
        )


@torch.no_grad()
def evaluate(model, loader):
    """Share of questions whose own passage comes first among those of the batch."""
    model.eval()
    hits, total = 0, 0
    for batch in loader:
        scores = model(batch["question"], batch["passage"])
        hits += (scores.argmax(dim=1) == torch.arange(len(scores), device=scores.device)).sum().item()
        total += len(scores)
    model.train()
    return hits / total


def main():
    set_seed(4)
    make_pairs()
    accelerator = Accelerator(cpu=True)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(ROOT, "tokenizer.json"), pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]"
    )
    pairs = pd.read_parquet(os.path.join(ROOT, "pairs.parquet"))
    train, held_out = pairs.iloc[:-480], pairs.iloc[-480:]
    collate = PairCollator(tokenizer)
    loader = DataLoader(PairDataset(train), batch_size=BATCH_SIZE, shuffle=True, drop_last=True, collate_fn=collate)
    held_out_loader = DataLoader(PairDataset(held_out), batch_size=BATCH_SIZE, collate_fn=collate)

    model = LateInteraction(len(tokenizer))
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.01)
    schedule = get_linear_schedule_with_warmup(optimizer, 100, EPOCHS * len(loader))
    model, optimizer, loader, held_out_loader, schedule = accelerator.prepare(
        model, optimizer, loader, held_out_loader, schedule
    )

    step = 0
    for epoch in range(EPOCHS):
        for batch in loader:
            scores = model(batch["question"], batch["passage"])
            targets = torch.arange(len(scores), device=scores.device)
            loss = nn.functional.cross_entropy(scores, targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % 50 == 0:
                accelerator.print(f"step {step}: loss {loss.item():.3f}")
        accelerator.print(f"epoch {epoch}: first place in {evaluate(model, held_out_loader):.3f} of the questions")
        accelerator.save(accelerator.unwrap_model(model).state_dict(), os.path.join(ROOT, "model.pt"))


if __name__ == "__main__":
    main()
