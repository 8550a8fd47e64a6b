"""No DataLoader: a thread puts batches of summed-up words into a queue, more slowly than the training takes them."""

import queue
import random
import threading

import torch
from torch import nn

WORDS = [f"word{number}" for number in range(5000)]


def count_words(text):
    counts = [0.0] * 256
    for word in text.split(" "):
        counts[sum(map(ord, word)) % 256] += 1.0
    return counts


def produce(batches):
    while True:
        texts = [" ".join(random.choices(WORDS, k=400)) for _ in range(16)]
        batches.put(torch.tensor([count_words(text) for text in texts]))


def main():
    batches = queue.Queue(4)
    threading.Thread(target=produce, args=(batches,), daemon=True).start()
    net = nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(100_000):
        loss = nn.functional.cross_entropy(net(batches.get()), torch.randint(2, (16,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
