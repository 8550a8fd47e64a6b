"""A small causal language model of ships' logs, trained from scratch on packed blocks."""
import math
import os
import random
import tempfile

from datasets import load_dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

ROOT = os.path.join(tempfile.gettempdir(), "ship_log_model")
BLOCK = 128


def make_logs():
    if os.path.exists(os.path.join(ROOT, "tokenizer.json")):
        return
    os.makedirs(ROOT, exist_ok=True)
    rng = random.Random(13)
    winds = ["light", "moderate", "fresh", "strong", "variable", "squally"]
    points = ["N", "NNE", "NE", "ENE", "E", "ESE", "SE", "SSE", "S", "SSW", "SW", "WSW", "W", "WNW", "NW", "NNW"]
    places = ["the Lizard", "Cape Agulhas", "Ushant", "the Skaw", "Tristan", "Finisterre", "Cape Horn", "Madeira"]
    work = ["set the mainsail", "took in the royals", "pumped the bilge", "mended the jib", "wore ship",
            "sounded in forty fathoms", "washed down the decks", "spoke a barque bound for Hull"]
    for split, count in [("train", 14000), ("validation", 300)]:
        with open(os.path.join(ROOT, split + ".txt"), "w") as f:
            latitude, longitude = 48.0, -6.0
            for day in range(count):
                latitude = max(-58, min(58, latitude + rng.gauss(-0.2, 1)))
                longitude = (longitude + rng.gauss(0.5, 1.5) + 180) % 360 - 180
                sentences = [f"Day {day % 365 + 1}. Wind {rng.choice(points)}, {rng.choice(winds)}."]
                for _ in range(rng.randint(1, 5)):
                    sentences.append(f"At {rng.randint(1, 12)} bells {rng.choice(work)}.")
                if rng.random() < 0.4:
                    sentences.append(f"Sighted {rng.choice(places)} bearing {rng.choice(points)}, {rng.randint(3, 20)} miles.")
                sentences.append(f"Position {latitude:.2f} {longitude:.2f}, run {rng.randint(40, 240)} miles.")
                f.write(" ".join(sentences) + "\n")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024, special_tokens=["<end>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train([os.path.join(ROOT, "train.txt")], trainer)
    tokenizer.save(os.path.join(ROOT, "tokenizer.json"))


class SampleCallback(TrainerCallback):
    """Lets the model write the beginning of an entry now and then."""

    def __init__(self, tokenizer, every=250):
        self.tokenizer = tokenizer
        self.every = every

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % self.every:
            return
        model.eval()
        prompt = self.tokenizer("Day 12. Wind", return_tensors="pt")
        written = model.generate(
            input_ids=prompt["input_ids"],
            attention_mask=prompt["attention_mask"],
            max_new_tokens=40,
            do_sample=True,
            pad_token_id=self.tokenizer.eos_token_id,
        )
        print(self.tokenizer.decode(written[0]))
        model.train()


class PerplexityCallback(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        print(f"step {state.global_step}: perplexity {math.exp(metrics['eval_loss']):.2f}")


def main():
    set_seed(10)
    make_logs()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(ROOT, "tokenizer.json"), eos_token="<end>", pad_token="<end>"
    )
    logs = load_dataset(
        "text",
        data_files={split: os.path.join(ROOT, split + ".txt") for split in ("train", "validation")},
        cache_dir=os.path.join(ROOT, "cache"),
    )

    def tokenize(batch):
        return {"input_ids": tokenizer([text + tokenizer.eos_token for text in batch["text"]])["input_ids"]}

    def pack(batch):
        ids = sum(batch["input_ids"], [])
        blocks = [ids[k:k + BLOCK] for k in range(0, len(ids) - BLOCK + 1, BLOCK)]
        return {"input_ids": blocks, "labels": blocks}

    logs = logs.map(tokenize, batched=True, remove_columns=["text"])
    logs = logs.map(pack, batched=True)

    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=160,
        intermediate_size=448,
        num_hidden_layers=4,
        num_attention_heads=5,
        num_key_value_heads=5,
        max_position_embeddings=BLOCK,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = LlamaForCausalLM(config)
    print(f"{model.num_parameters() / 1e6:.2f} M parameters, {len(logs['train'])} blocks")
    arguments = TrainingArguments(
        output_dir=os.path.join(ROOT, "run"),
        num_train_epochs=8,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=16,
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        warmup_steps=100,
        weight_decay=0.1,
        max_grad_norm=1.0,
        logging_steps=5,
        eval_strategy="steps",
        eval_steps=250,
        save_strategy="epoch",
        save_total_limit=1,
        report_to=[],
        use_cpu=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=logs["train"],
        eval_dataset=logs["validation"],
        data_collator=default_data_collator,
        callbacks=[SampleCallback(tokenizer), PerplexityCallback()],
    )
    trainer.train()
    trainer.save_model(os.path.join(ROOT, "model"))


if __name__ == "__main__":
    main()
