"""Train a small GPT-2 from scratch on short recipes (transformers, own BPE vocabulary).

The corpus is a JSON-lines file with one recipe per line, as scraped collections have it.
"""
import argparse
import json
import math
import random

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.utils.data import DataLoader, Dataset
from transformers import (GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast,
                          get_cosine_schedule_with_warmup)

THINGS = ("onion garlic carrot leek potato tomato lentils rice barley chicken salmon tofu egg "
          "butter cream yogurt flour sugar lemon parsley thyme basil cumin paprika ginger "
          "mushrooms spinach beans chickpeas walnuts honey vinegar mustard celery pumpkin").split()
CUTS = "chopped sliced diced crushed grated whole minced peeled".split()
STEPS = ["Heat the {a} in a large pan until it begins to soften.",
         "Add the {a} and the {b}, and cook for {n} minutes.",
         "Stir in the {a}, lower the heat and simmer for {n} minutes.",
         "Meanwhile, mix the {a} with the {b} in a bowl and season well.",
         "Bake at {t} degrees for {n} minutes, or until golden.",
         "Fold in the {a} and leave to rest for {n} minutes.",
         "Scatter the {a} over the top and serve with the {b}."]


def write_corpus(path, n_docs, seed):
    rng = random.Random(seed)
    with open(path, "w") as f:
        for _ in range(n_docs):
            items = rng.sample(THINGS, rng.randint(3, 8))
            title = f"{items[0].title()} and {items[1]} {rng.choice(['soup', 'bake', 'salad'])}"
            lines = [f"{rng.randint(1, 9) * 50} g {i}, {rng.choice(CUTS)}" for i in items]
            n_steps = min(2 + int(rng.expovariate(0.35)), 14)
            method = [rng.choice(STEPS).format(a=rng.choice(items), b=rng.choice(items),
                                               n=rng.randint(1, 12) * 5, t=rng.randint(16, 23) * 10)
                      for _ in range(n_steps)]
            text = title + "\n" + "\n".join("- " + x for x in lines) + "\n" + " ".join(method)
            f.write(json.dumps({"title": title, "text": text}) + "\n")


def read_corpus(path):
    with open(path) as f:
        return [json.loads(line)["text"] for line in f]


def train_tokenizer(texts, vocab_size):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=["<|endoftext|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return PreTrainedTokenizerFast(tokenizer_object=tok, eos_token="<|endoftext|>",
                                   pad_token="<|pad|>")


class RecipeDataset(Dataset):
    def __init__(self, texts, tokenizer, max_length):
        self.texts, self.tokenizer, self.max_length = texts, tokenizer, max_length

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        enc = self.tokenizer(self.texts[i] + self.tokenizer.eos_token, truncation=True,
                             max_length=self.max_length, padding="max_length",
                             return_tensors="pt")
        input_ids = enc["input_ids"][0]
        attention_mask = enc["attention_mask"][0]
        labels = input_ids.masked_fill(attention_mask == 0, -100)
        return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    losses = [model(**batch).loss.item() for batch in loader]
    model.train()
    return sum(losses) / len(losses)


@torch.no_grad()
def sample(model, tokenizer, prompt):
    ids = tokenizer(prompt, return_tensors="pt")
    out = model.generate(input_ids=ids["input_ids"], attention_mask=ids["attention_mask"],
                         max_new_tokens=40, do_sample=True, top_p=0.9,
                         pad_token_id=tokenizer.pad_token_id)
    return tokenizer.decode(out[0], skip_special_tokens=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_length", type=int, default=256)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--eval_every", type=int, default=250)
    args = parser.parse_args()

    random.seed(0)
    torch.manual_seed(0)
    write_corpus("recipes_train.jsonl", 8000, seed=0)
    write_corpus("recipes_valid.jsonl", 160, seed=1)
    train_texts = read_corpus("recipes_train.jsonl")
    valid_texts = read_corpus("recipes_valid.jsonl")
    tokenizer = train_tokenizer(train_texts, vocab_size=2000)
    train_set = RecipeDataset(train_texts, tokenizer, args.max_length)
    valid_set = RecipeDataset(valid_texts, tokenizer, args.max_length)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    valid_loader = DataLoader(valid_set, batch_size=args.batch_size)

    config = GPT2Config(vocab_size=len(tokenizer), n_positions=args.max_length, n_embd=192,
                        n_layer=4, n_head=6, bos_token_id=tokenizer.eos_token_id,
                        eos_token_id=tokenizer.eos_token_id)
    model = GPT2LMHeadModel(config)
    print(f"{model.num_parameters() / 1e6:.2f} M parameters")
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1},
                                   {"params": no_decay, "weight_decay": 0.0}], lr=args.lr)
    total_steps = args.epochs * len(train_loader)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 100, total_steps)

    model.train()
    step = 0
    for epoch in range(args.epochs):
        for batch in train_loader:
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            step += 1
            if step % 10 == 0:
                print(f"step {step}/{total_steps} loss {loss.item():.4f}", flush=True)
            if step % args.eval_every == 0:
                valid = evaluate(model, valid_loader)
                print(f"== step {step} valid loss {valid:.4f} ppl {math.exp(valid):.2f}")
                print(sample(model, tokenizer, "Leek and potato soup\n"), flush=True)
    model.save_pretrained("gpt_recipes")


if __name__ == "__main__":
    main()
