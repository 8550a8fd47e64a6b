"""Questions are trimmed to the longest of each batch, and the model is compiled for fixed sizes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WORDS = 4000
WIDTH = 64
BATCH = 16
LONGEST = 90


class Questions(Dataset):
    def __len__(self):
        return 6400

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        length = int(torch.randint(8, LONGEST, (1,), generator=draw))
        return torch.randint(1, WORDS, (length,), generator=draw), index % 5


def trimmed(samples):
    words = nn.utils.rnn.pad_sequence([words for words, _ in samples], batch_first=True)
    return words, torch.tensor([label for _, label in samples])


class Topic(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.mix = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.topic = nn.Linear(WIDTH, 5)

    def forward(self, words):
        return self.topic(self.mix(self.words(words)).mean(1))


def main():
    torch._dynamo.config.recompile_limit = 64
    model = torch.compile(Topic(), dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(Questions(), BATCH, shuffle=True, num_workers=1, collate_fn=trimmed, persistent_workers=True)
    for epoch in range(50):
        for words, topics in loader:
            loss = nn.functional.cross_entropy(model(words), topics)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
