"""Extractive question answering: a small encoder with start and end heads, trained on features in memory."""
import argparse
import gc
import logging
import math
import os
import pickle
import random
import tempfile
import time
from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("qa")

VOCAB = 4000
CLS, SEP = 1, 2


class InputFeatures:
    """One training feature with what is needed to map a span back to its text."""

    __slots__ = ("input_ids", "token_type_ids", "offset_mapping", "start_position", "end_position", "qas_id")

    def __init__(self, input_ids, token_type_ids, offset_mapping, start_position, end_position, qas_id):
        self.input_ids = input_ids
        self.token_type_ids = token_type_ids
        self.offset_mapping = offset_mapping
        self.start_position = start_position
        self.end_position = end_position
        self.qas_id = qas_id


def convert_examples(n, context_length, query_length, seed):
    rng = random.Random(seed)
    words = range(10, VOCAB)
    examples = []
    for i in range(n):
        context = rng.choices(words, k=context_length)
        start = rng.randrange(context_length - 4)
        end = start + rng.randrange(1, 4)
        query = context[start:end + 1][:query_length]
        query += rng.choices(words, k=query_length - len(query))
        examples.append((f"q{i:06d}", query, context, start, end))
    return examples


def make_features(examples):
    features = []
    for qas_id, query, context, start, end in examples:
        ids = [CLS] + query + [SEP] + context + [SEP]
        shift = len(query) + 2
        types = [0] * shift + [1] * (len(ids) - shift)
        pos, offsets = 0, []
        for token in ids:
            width = token % 9 + 1
            offsets.append([pos, pos + width])
            pos += width + 1
        features.append(InputFeatures(ids, types, offsets, start + shift, end + shift, qas_id))
    return features


def load_features(args):
    root = os.path.join(tempfile.gettempdir(), "qa_span")
    path = os.path.join(root, f"examples_{args.num_examples}.pkl")
    if not os.path.exists(path):
        os.makedirs(root, exist_ok=True)
        with open(path, "wb") as f:
            pickle.dump(convert_examples(args.num_examples, args.context_length, args.query_length, args.seed), f)
    with open(path, "rb") as f:
        examples = pickle.load(f)
    return make_features(examples)


class SpanDataset(Dataset):
    def __init__(self, features):
        self.features = features

    def __len__(self):
        return len(self.features)

    def __getitem__(self, i):
        return self.features[i]


def collate(batch):
    return {
        "input_ids": torch.tensor([f.input_ids for f in batch]),
        "token_type_ids": torch.tensor([f.token_type_ids for f in batch]),
        "start_positions": torch.tensor([f.start_position for f in batch]),
        "end_positions": torch.tensor([f.end_position for f in batch]),
    }


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, self.heads, D // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(a.transpose(1, 2).reshape(B, T, D))
        return x + self.fc2(F.relu(self.fc1(self.ln2(x))))


class SpanModel(nn.Module):
    def __init__(self, dim=96, heads=4, layers=2, max_len=64):
        super().__init__()
        self.word = nn.Embedding(VOCAB, dim)
        self.position = nn.Parameter(torch.randn(max_len, dim) * 0.02)
        self.token_type = nn.Embedding(2, dim)
        self.layers = nn.ModuleList([EncoderLayer(dim, heads) for _ in range(layers)])
        self.ln = nn.LayerNorm(dim)
        self.qa_outputs = nn.Linear(dim, 2)

    def forward(self, input_ids, token_type_ids, start_positions, end_positions):
        x = self.word(input_ids) + self.token_type(token_type_ids) + self.position[:input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        start, end = self.qa_outputs(self.ln(x)).unbind(-1)
        return (F.cross_entropy(start, start_positions) + F.cross_entropy(end, end_positions)) / 2


class Trainer:
    def __init__(self, args, model, dataset):
        self.args = args
        self.model = model
        self.loader = DataLoader(dataset, batch_size=args.train_batch_size, shuffle=True, collate_fn=collate,
                                 drop_last=True)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate, fused=True)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._lr)
        self.global_step = 0
        self.losses = deque(maxlen=args.logging_steps)

    def _lr(self, step):
        if step < self.args.warmup_steps:
            return (step + 1) / self.args.warmup_steps
        return 1.0 / math.sqrt(1 + (step - self.args.warmup_steps) / 500)

    def free_memory(self):
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def training_step(self, batch):
        self.model.train()
        loss = self.model(**batch)
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss = loss.detach()
        del batch
        self.free_memory()
        return loss

    def train(self):
        start = time.time()
        while True:
            for batch in self.loader:
                self.losses.append(self.training_step(batch))
                self.global_step += 1
                elapsed = time.time() - start
                if self.global_step % self.args.logging_steps == 0:
                    logger.info("step %d loss %.4f lr %.2e (%.2f it/s)", self.global_step,
                                torch.stack(tuple(self.losses)).mean().item(),
                                self.scheduler.get_last_lr()[0], self.global_step / elapsed)
                if elapsed > self.args.max_time:
                    logger.info("done: %d steps in %.1fs", self.global_step, elapsed)
                    return


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--num_examples", type=int, default=5000)
    p.add_argument("--context_length", type=int, default=36)
    p.add_argument("--query_length", type=int, default=6)
    p.add_argument("--train_batch_size", type=int, default=16)
    p.add_argument("--learning_rate", type=float, default=1e-3)
    p.add_argument("--warmup_steps", type=int, default=100)
    p.add_argument("--logging_steps", type=int, default=25)
    p.add_argument("--max_time", type=float, default=75.0)
    p.add_argument("--seed", type=int, default=42)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(name)s - %(message)s")
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    features = load_features(args)
    logger.info("%d features", len(features))
    Trainer(args, SpanModel(), SpanDataset(features)).train()


if __name__ == "__main__":
    main()
