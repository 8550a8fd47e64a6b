"""Masked language model on made-up recipes with transformers' Trainer, and a running report on which words it gets right."""
import collections
import random
import tempfile

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (BertConfig, BertForMaskedLM, DataCollatorForLanguageModeling, PreTrainedTokenizerFast, Trainer,
                          TrainingArguments)

SEED = 21
BATCH = 16
LENGTH = 64
N_RECIPES = 4000
FIRST = 5  # a word counts as known when it is among the first five guesses


def recipes(rng):
    foods = [a + b for a in ("car", "pot", "tom", "bas", "cur", "gar", "pep", "len") for b in ("rot", "ato", "il", "ry", "lic", "tils")]
    verbs = "chop slice boil fry roast stir fold whisk grate simmer season serve".split()
    extra = "slowly until golden with a little salt and oil in the large pan for some minutes then".split()
    for _ in range(N_RECIPES):
        words = []
        while len(words) < LENGTH:
            words += [rng.choice(verbs), "the", rng.choice(foods)] + rng.choices(extra, k=rng.randint(2, 6))
        yield " ".join(words)


def build_tokenizer(texts):
    tok = Tokenizer(models.BPE(unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok.train_from_iterator(texts[:1000], trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
                                   sep_token="[SEP]", mask_token="[MASK]")


class RecipeTrainer(Trainer):
    def __init__(self, *args, tokenizer=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.words = tokenizer
        self.asked = collections.Counter()
        self.known = collections.Counter()

    def tally(self, labels, logits):
        guesses = logits.detach().topk(FIRST, dim=-1).indices
        for want, got, hidden in zip(torch.where(labels == -100, guesses[..., 0], labels).tolist(), guesses.tolist(), (labels != -100).tolist()):
            want = [self.words.decode([w]) for w in want]
            got = [[self.words.decode([g]) for g in five] for five in got]
            for w, g, h in zip(want, got, hidden):
                if h:
                    self.asked[w] += 1
                    self.known[w] += w in g

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        out = model(**inputs)
        self.tally(inputs["labels"], out.logits)
        return (out.loss, out) if return_outputs else out.loss

    def log(self, logs, *args, **kwargs):
        best = [w for w, n in self.asked.most_common(30) if self.known[w] > 0.5 * n]
        logs["words_known"] = len(best)
        super().log(logs, *args, **kwargs)


def main():
    torch.manual_seed(SEED)
    texts = list(recipes(random.Random(SEED)))
    tokenizer = build_tokenizer(texts)
    encoded = tokenizer(texts, truncation=True, max_length=LENGTH, padding="max_length", return_token_type_ids=False)
    rows = [{"input_ids": i, "attention_mask": m} for i, m in zip(encoded["input_ids"], encoded["attention_mask"])]
    config = BertConfig(vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=1, num_attention_heads=4,
                        intermediate_size=128, max_position_embeddings=LENGTH)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=BATCH,
        num_train_epochs=500,
        learning_rate=1e-3,
        logging_steps=100,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        seed=SEED,
        dataloader_pin_memory=False,
    )
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    trainer = RecipeTrainer(model=BertForMaskedLM(config), args=args, train_dataset=rows, data_collator=collator, tokenizer=tokenizer)
    trainer.train()


if __name__ == "__main__":
    main()
