"""sentence-transformers, as its quick start shows it: pairs of sentences, its trainer, a small untrained model."""

import sys

from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
    losses,
    models,
)

folder, every = sys.argv[1], int(sys.argv[2])
with open(folder + "/train.txt") as file:
    lines = [line.strip() for line in file if line.strip()]
table = Dataset.from_dict({"anchor": lines[:400], "positive": lines[1:401]})
word = models.Transformer(sys.argv[3], max_seq_length=32)
model = SentenceTransformer(modules=[word, models.Pooling(word.get_word_embedding_dimension())], device="cpu")
arguments = SentenceTransformerTrainingArguments(
    output_dir="out", max_steps=60, per_device_train_batch_size=8, logging_steps=1, report_to="none", seed=1,
    eval_strategy="steps" if every else "no", eval_steps=every or None, save_strategy="no", use_cpu=True,
)  # fmt: skip
trainer = SentenceTransformerTrainer(
    model=model, args=arguments, train_dataset=table, eval_dataset=table.select(range(64)),
    loss=losses.MultipleNegativesRankingLoss(model),
)  # fmt: skip
trainer.train()
for entry in trainer.state.log_history:
    if "loss" in entry:
        print("loss", entry["loss"])
print("steps", trainer.state.global_step)
