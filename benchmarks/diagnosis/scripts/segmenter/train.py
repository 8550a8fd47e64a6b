"""Segment slides: settings, data and network are in files of their own."""

import torch
from data import Slides
from network import network
from settings import BATCH, CLASSES
from torch.utils.data import DataLoader


class Experiment:
    def __init__(self):
        self.net = network(CLASSES)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.loss = torch.nn.CrossEntropyLoss()

    def epoch(self, loader):
        for slides, labels in loader:
            loss = self.loss(self.net(slides), labels)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return loss.item()


if __name__ == "__main__":
    experiment = Experiment()
    loader = DataLoader(Slides(), batch_size=BATCH, shuffle=True, num_workers=2)
    for number in range(20):
        print(number, experiment.epoch(loader))
