"""A small autoencoder whose loss compares probabilities of every pixel: a CPU computes their logarithms one by one."""

import torch
from torch import nn


def main():
    encoder = nn.Sequential(nn.Linear(784, 32), nn.ReLU())
    decoder = nn.Sequential(nn.Linear(32, 784), nn.Sigmoid())
    parameters = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=1e-2)
    digits = (torch.rand(4096, 784) < 0.2).float()
    loss = nn.BCELoss()
    for step in range(1_000_000):
        batch = digits[256 * (step % 16) : 256 * (step % 16 + 1)]
        optimizer.zero_grad()
        loss(decoder(encoder(batch)), batch).backward()
        optimizer.step()


if __name__ == "__main__":
    main()
