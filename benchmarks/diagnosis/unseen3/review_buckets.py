# Sentiment of product reviews (token ids), GRU, batches of similar length.
import os, random, tempfile, time
import sys
import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

DATA = sys.argv[1] if len(sys.argv) > 1 else os.path.join(tempfile.gettempdir(), "product_reviews.npz")
N, VOCAB, BATCH, EPOCHS = 80000, 5000, 32, 30


def prepare(path):
    rng = np.random.default_rng(7)
    lengths = np.clip(rng.lognormal(3.3, 0.5, N).astype(int), 5, 120)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    tokens = rng.zipf(1.3, offsets[-1]) % VOCAB
    sums = np.add.reduceat((tokens % 7 == 3).astype(int), offsets[:-1])
    labels = (sums > np.median(sums)).astype(np.int64)
    np.savez(path, tokens=tokens.astype(np.int32), offsets=offsets, labels=labels)


class Reviews(Dataset):
    def __init__(self, path):
        z = np.load(path)
        self.tokens, self.offsets, self.labels = z["tokens"], z["offsets"], z["labels"]

    def __len__(self):
        return len(self.labels)

    def length(self, i):
        return int(self.offsets[i + 1] - self.offsets[i])

    def __getitem__(self, i):
        t = self.tokens[self.offsets[i]:self.offsets[i + 1]]
        return torch.from_numpy(t.astype(np.int64)), int(self.labels[i])


class SimilarLengthBatches(Sampler):
    """Pick a random review, then fill the batch with the remaining reviews nearest to it in length."""

    def __init__(self, ds, batch_size, seed=0):
        self.lengths = [ds.length(i) for i in range(len(ds))]
        self.batch_size = batch_size
        self.rng = random.Random(seed)

    def __len__(self):
        return len(self.lengths) // self.batch_size

    def __iter__(self):
        remaining = list(range(len(self.lengths)))
        self.rng.shuffle(remaining)
        while len(remaining) >= self.batch_size:
            pivot = self.lengths[self.rng.choice(remaining)]
            remaining.sort(key=lambda i: abs(self.lengths[i] - pivot))
            yield remaining[:self.batch_size]
            remaining = remaining[self.batch_size:]


def collate(items):
    seqs, labels = zip(*items)
    lens = torch.tensor([len(s) for s in seqs])
    return pad_sequence(seqs, batch_first=True), lens, torch.tensor(labels)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 32, padding_idx=0)
        self.rnn = nn.GRU(32, 48, batch_first=True)
        self.out = nn.Linear(48, 2)

    def forward(self, x, lens):
        h, _ = self.rnn(self.emb(x))
        return self.out(h[torch.arange(len(x)), lens - 1])


def main():
    torch.manual_seed(0)
    if not os.path.exists(DATA):
        prepare(DATA)
    ds = Reviews(DATA)
    dl = DataLoader(ds, batch_sampler=SimilarLengthBatches(ds, BATCH), collate_fn=collate, num_workers=1)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    crit = nn.CrossEntropyLoss()
    start, n, step = time.time(), 0, 0
    for epoch in range(EPOCHS):
        for x, lens, y in dl:
            opt.zero_grad()
            loss = crit(net(x, lens), y)
            loss.backward()
            opt.step()
            n += len(y)
            step += 1
            if step % 50 == 0:
                print(f"[{epoch}:{step}] loss={loss.item():.3f} ({n / (time.time() - start):.0f} reviews/s)")


if __name__ == "__main__":
    main()
