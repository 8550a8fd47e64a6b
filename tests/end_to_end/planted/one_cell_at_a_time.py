"""A recurrent cell is written by hand: thousands of operators a step, each on a few hundred numbers."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Recurrent(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.of_input, self.of_state = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, sequence):
        state = torch.zeros(sequence.shape[0], sequence.shape[2])
        for place in range(sequence.shape[1]):
            gate = torch.sigmoid(self.of_input(sequence[:, place]) + self.of_state(state))
            state = gate * state + (1 - gate) * torch.tanh(sequence[:, place])
        return state


def main():
    net = nn.Sequential(Recurrent(32), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    points = TensorDataset(torch.rand(4096, 80, 32), torch.randint(10, (4096,)))
    loader = DataLoader(points, batch_size=16, num_workers=1, persistent_workers=True)
    for _ in range(10_000):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
