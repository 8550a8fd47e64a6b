"""A short validation every few steps, whose DataLoader starts its workers anew each time."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def batches(count):
    return TensorDataset(torch.rand(count, 64), torch.randint(10, (count,)))


def main():
    net = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = DataLoader(batches(50_000), batch_size=64, shuffle=True)
    held_out = DataLoader(batches(64), batch_size=32, num_workers=3)

    @torch.inference_mode()
    def validate():
        net.eval()
        losses = [nn.functional.cross_entropy(net(inputs), labels) for inputs, labels in held_out]
        net.train()
        return torch.stack(losses).mean().item()

    for _ in range(1_000):
        for step, (inputs, labels) in enumerate(loader):
            loss = nn.functional.cross_entropy(net(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 40 == 39:
                print("held out", validate(), flush=True)


if __name__ == "__main__":
    main()
