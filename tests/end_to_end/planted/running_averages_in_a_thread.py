"""A thread keeps running averages of everything in plain Python, while a network of many layers trains beside it."""

import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def keep_averages(history, stop):
    averages = [0.0] * 200
    while not stop.is_set():
        for place in range(len(averages)):
            for value in history:
                averages[place] = 0.99 * averages[place] + 0.01 * value * place


def main():
    layers = [layer for _ in range(12) for layer in (nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU())]
    net = nn.Sequential(*layers, nn.Linear(256, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    points = TensorDataset(torch.rand(4096, 256), torch.randint(10, (4096,)))
    loader = DataLoader(points, batch_size=128, num_workers=1, persistent_workers=True)
    stop = threading.Event()
    thread = threading.Thread(target=keep_averages, args=([0.5] * 1000, stop), name="averages", daemon=True)
    thread.start()
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
