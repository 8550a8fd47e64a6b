"""A text classifier whose convolutions are of pictures with one channel, as wide as the embeddings of words."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

WORDS, LENGTH, SIZE, OUTPUTS = 5_000, 128, 128, 64


class TextCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, SIZE)
        self.convolutions = nn.ModuleList([nn.Conv2d(1, OUTPUTS, (words, SIZE)) for words in (3, 4, 5)])
        self.out = nn.Linear(3 * OUTPUTS, 2)

    def forward(self, texts):
        x = self.embedding(texts)[:, None]
        found = [F.relu(convolution(x)).squeeze(3) for convolution in self.convolutions]
        return self.out(torch.cat([one.max(2).values for one in found], 1))


def main():
    net = TextCNN()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    texts = TensorDataset(torch.randint(WORDS, (4096, LENGTH)), torch.randint(2, (4096,)))
    for _ in range(1_000):
        for text, label in DataLoader(texts, batch_size=64, shuffle=True):
            loss = F.cross_entropy(net(text), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
