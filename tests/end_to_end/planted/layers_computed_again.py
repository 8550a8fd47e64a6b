"""A small language model that checkpoints each of its layers, on a machine that is nearly empty."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

WORDS, WIDTH, LENGTH, LAYERS = 300, 128, 64, 4

torch.manual_seed(0)
table, head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 4, 512, batch_first=True) for _ in range(LAYERS))
optimizer = torch.optim.AdamW([*table.parameters(), *layers.parameters(), *head.parameters()])
for (words,) in DataLoader(TensorDataset(torch.randint(0, WORDS, (100_000, LENGTH + 1))), 16, shuffle=True):
    hidden = table(words[:, :-1])
    for layer in layers:
        hidden = checkpoint(layer, hidden, use_reentrant=False)
    loss = nn.functional.cross_entropy(head(hidden).flatten(0, 1), words[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
