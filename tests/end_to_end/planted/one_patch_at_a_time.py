"""A scorer of small patches that is called on one patch after the other."""

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def main():
    scorer = nn.Sequential(nn.Linear(192, 768), nn.GELU(), nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 1))
    optimizer = torch.optim.SGD(scorer.parameters(), lr=0.01)
    pictures = TensorDataset(torch.rand(512, 64, 192), torch.rand(512))
    batches = BatchSampler(RandomSampler(pictures), 2, drop_last=True)
    for _ in range(10_000):
        for patches, labels in DataLoader(pictures, sampler=batches, batch_size=None):
            scores = [torch.stack([scorer(patch) for patch in picture]).mean() for picture in patches]
            loss = nn.functional.mse_loss(torch.stack(scores), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
