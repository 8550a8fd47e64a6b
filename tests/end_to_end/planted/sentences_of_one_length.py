"""Sentences of about forty words, all padded to 256 positions when they are read."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

LONGEST = 256
WORDS = 2000


class Sentences(Dataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(0)
        lengths = torch.randint(10, 70, (500,), generator=draw)
        self.lines = [torch.randint(1, WORDS, (int(length),), generator=draw) for length in lengths]

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        line = self.lines[index % len(self.lines)]
        ids = torch.zeros(LONGEST, dtype=torch.long)
        ids[: len(line)] = line
        return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": line[0] % 4}


class Reader(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2)
        self.topic = nn.Linear(width, 4)

    def forward(self, input_ids, attention_mask):
        hidden = self.layers(self.words(input_ids), src_key_padding_mask=attention_mask == 0)
        weights = attention_mask / attention_mask.sum(1, keepdim=True)
        return self.topic((hidden * weights[..., None]).sum(1))


def main():
    net = Reader()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    loader = DataLoader(Sentences(), batch_size=16, shuffle=True, num_workers=1, persistent_workers=True)
    for batch in loader:
        loss = nn.functional.cross_entropy(net(batch["input_ids"], batch["attention_mask"]), batch["labels"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
