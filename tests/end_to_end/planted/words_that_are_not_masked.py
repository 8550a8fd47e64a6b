"""A masked language model that computes the values of all words at all places, and is trained on those masked."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORDS, WIDTH, LENGTH, IGNORED = 12_000, 64, 64, -100

torch.manual_seed(0)
encoder = nn.TransformerEncoderLayer(WIDTH, 4, 128, batch_first=True)
model = nn.Sequential(nn.Embedding(WORDS, WIDTH), encoder, nn.Linear(WIDTH, WORDS))
optimizer = torch.optim.AdamW(model.parameters())
texts = TensorDataset(torch.randint(0, WORDS, (100_000, LENGTH)))
for (words,) in DataLoader(texts, 8, shuffle=True):
    targets = words.masked_fill(torch.rand(words.shape) > 0.15, IGNORED)
    loss = nn.functional.cross_entropy(model(words).flatten(0, 1), targets.flatten(), ignore_index=IGNORED)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
