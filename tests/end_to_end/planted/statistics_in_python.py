"""A confusion matrix is counted value by value in Python, in the middle of the training loop."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def count(confusion, predicted, labels):
    for guess, label in zip(predicted.tolist(), labels.tolist(), strict=True):
        for row in range(len(confusion)):
            for column in range(len(confusion)):
                confusion[row][column] += int(row == label and column == guess)


def main():
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    points = TensorDataset(torch.rand(4096, 64), torch.randint(10, (4096,)))
    loader = DataLoader(points, batch_size=512, num_workers=1, persistent_workers=True)
    confusion = [[0] * 10 for _ in range(10)]
    for _ in range(10_000):
        for inputs, labels in loader:
            outputs = net(inputs)
            loss = nn.functional.cross_entropy(outputs, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            count(confusion, outputs.argmax(1), labels)


if __name__ == "__main__":
    main()
