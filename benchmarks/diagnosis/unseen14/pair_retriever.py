"""Train a small dual encoder on (query, passage) pairs with in-batch negatives."""
import argparse
import logging
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset

logger = logging.getLogger("pair_retriever")
CACHE = os.path.join(tempfile.gettempdir(), "pair_retriever")


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-pairs", type=int, default=650_000)
    parser.add_argument("--vocab-size", type=int, default=2048)
    parser.add_argument("--query-len", type=int, default=8)
    parser.add_argument("--passage-len", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=96)
    parser.add_argument("--embed-dim", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--scale", type=float, default=20.0)
    parser.add_argument("--max-steps", type=int, default=4000)
    parser.add_argument("--log-every", type=int, default=10)
    parser.add_argument("--seed", type=int, default=12)
    return parser.parse_args()


def prepare(args):
    """Synthetic click log: popular queries come with several passages, popular passages with several queries."""
    os.makedirs(CACHE, exist_ok=True)
    path = os.path.join(CACHE, f"pairs_{args.num_pairs}.npz")
    if not os.path.exists(path):
        rng = np.random.default_rng(0)
        n = args.num_pairs
        n_topics = 512
        topics = rng.integers(3, args.vocab_size, size=(n_topics, 48), dtype=np.int16)
        query_id = rng.integers(0, n // 3, size=n, dtype=np.int64)
        passage_id = rng.integers(0, n // 2, size=n, dtype=np.int64)
        topic = query_id % n_topics
        query = topics[topic[:, None], rng.integers(0, 48, size=(n, args.query_len))]
        passage = topics[topic[:, None], rng.integers(0, 48, size=(n, args.passage_len))]
        tmp = path + ".tmp.npz"
        np.savez(tmp, query=query, passage=passage, query_id=query_id, passage_id=passage_id + n)
        os.replace(tmp, path)
    return path


class PairDataset(Dataset):
    def __init__(self, path):
        with np.load(path) as data:
            self.query = torch.from_numpy(data["query"])
            self.passage = torch.from_numpy(data["passage"])
            self.query_id = data["query_id"].tolist()
            self.passage_id = data["passage_id"].tolist()

    def __len__(self):
        return len(self.query_id)

    def __getitems__(self, indices):
        indices = torch.as_tensor(indices)
        return self.query[indices].long(), self.passage[indices].long()

    def identity(self, index):
        return self.query_id[index], self.passage_id[index]


class NoRepeatBatchSampler(BatchSampler):
    """Batches in which no query and no passage occurs twice, so that every in-batch negative is one.

    A pair that clashes with its batch stays in line and is offered to the next batch first.
    """

    def __init__(self, dataset, batch_size, seed=0, drop_last=True):
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.dataset) // self.batch_size

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        remaining = torch.randperm(len(self.dataset), generator=generator).tolist()
        while remaining:
            batch, seen = [], set()
            for index in remaining:
                values = self.dataset.identity(index)
                if seen.isdisjoint(values):
                    batch.append(index)
                    seen.update(values)
                    if len(batch) == self.batch_size:
                        break
            else:
                if self.drop_last or not batch:
                    return
            yield batch
            chosen = set(batch)
            remaining = [index for index in remaining if index not in chosen]


class Encoder(nn.Module):
    def __init__(self, vocab_size, dim, hidden=256):
        super().__init__()
        self.embed = nn.Embedding(vocab_size, dim)
        self.mix = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = self.norm(x + self.mix(x))
        return F.normalize(x.mean(dim=1), dim=-1)


class MultipleNegativesLoss(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, query, passage):
        scores = self.scale * query @ passage.t()
        labels = torch.arange(len(scores), device=scores.device)
        return F.cross_entropy(scores, labels), scores.detach()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    torch.manual_seed(args.seed)
    dataset = PairDataset(prepare(args))
    sampler = NoRepeatBatchSampler(dataset, args.batch_size, seed=args.seed)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=lambda batch: batch)
    encoder = Encoder(args.vocab_size, args.embed_dim)
    criterion = MultipleNegativesLoss(args.scale)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 200))
    logger.info("%d pairs, %d batches per epoch", len(dataset), len(sampler))

    step, epoch, start = 0, 0, time.perf_counter()
    running, correct = torch.zeros(()), torch.zeros(())
    while step < args.max_steps:
        sampler.set_epoch(epoch)
        for query, passage in loader:
            loss, scores = criterion(encoder(query), encoder(passage))
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            running += loss.detach()
            correct += (scores.argmax(dim=1) == torch.arange(len(scores))).float().mean()
            step += 1
            if step % args.log_every == 0:
                elapsed = time.perf_counter() - start
                logger.info("step %d loss %.4f acc@1 %.3f  %.1f steps/s", step, running.item() / args.log_every,
                            correct.item() / args.log_every, step / elapsed)
                running.zero_()
                correct.zero_()
            if step >= args.max_steps:
                break
        epoch += 1
    torch.save(encoder.state_dict(), os.path.join(CACHE, "encoder.pt"))


if __name__ == "__main__":
    main()
