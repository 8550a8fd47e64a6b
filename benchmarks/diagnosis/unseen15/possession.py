"""
possession.py

Predicts whether a football possession ends in a shot, from the positions of
all players and the ball (tracking data, 5 Hz).

Rewritten from our Java service (DL4J). The class structure is the same.
"""
import csv
import logging
import os
import random
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from typing import Iterator, List, Tuple

import numpy as np
import torch
from torch import Tensor, nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(threadName)s] %(levelname)s %(name)s - %(message)s")
LOGGER = logging.getLogger("org.club.analytics.PossessionTrainer")


class Config:
    SEED = 11
    NUM_POSSESSIONS = 3000
    FRAMES = 40
    FEATURES = 23 * 4            # x, y, vx, vy of 22 players and the ball
    BATCH_SIZE = 32
    MODEL_DIM = 192
    HEADS = 4
    FF_DIM = 768
    LAYERS = 3
    LEARNING_RATE = 3e-4
    EPOCHS = 30
    OUTPUT_DIR = os.path.join(tempfile.gettempdir(), "possession")


class Possession:
    """Plain value object."""

    def __init__(self, frames: np.ndarray, shot: bool):
        self._frames = frames
        self._shot = shot

    def getFrames(self) -> np.ndarray:
        return self._frames

    def isShot(self) -> bool:
        return self._shot


class PossessionRepository:
    FILE = os.path.join(Config.OUTPUT_DIR, "possessions.npz")

    def findAll(self) -> List[Possession]:
        if not os.path.exists(self.FILE):
            self._generate()
        with np.load(self.FILE) as archive:
            frames, shots = archive["frames"], archive["shots"]
        result = []
        for i in range(len(shots)):
            result.append(Possession(frames[i], bool(shots[i])))
        return result

    def _generate(self) -> None:
        os.makedirs(Config.OUTPUT_DIR, exist_ok=True)
        rng = np.random.default_rng(Config.SEED)
        n, t = Config.NUM_POSSESSIONS, Config.FRAMES
        velocity = rng.normal(0, 0.3, (n, t, 23, 2)).cumsum(axis=1) * 0.25
        drift = rng.normal(0.25, 0.5, (n, 1, 1, 1)) * np.array([1.0, 0.0])
        velocity = velocity + drift
        start = rng.uniform([-52, -34], [52, 34], (n, 1, 23, 2))
        position = start + velocity.cumsum(axis=1) * 0.2
        ball = position[:, -1, 22]
        distance = np.hypot(ball[:, 0] - 52.5, ball[:, 1])
        pressure = np.hypot(*(position[:, -1, 11:22] - ball[:, None]).transpose(2, 0, 1)).min(axis=1)
        logit = 2.0 - 0.09 * distance + 0.15 * pressure + 1.5 * drift[:, 0, 0, 0]
        shots = rng.random(n) < 1 / (1 + np.exp(-logit))
        frames = np.concatenate([position / 30.0, velocity], axis=3)
        np.savez(self.FILE, frames=frames.reshape(n, t, -1).astype(np.float32), shots=shots)


class BatchIterator:
    """Replaces DataSetIterator."""

    def __init__(self, possessions: List[Possession], batchSize: int, shuffle: bool):
        self._possessions = list(possessions)
        self._batchSize = batchSize
        self._shuffle = shuffle

    def __iter__(self) -> Iterator[Tuple[Tensor, Tensor]]:
        if self._shuffle:
            random.shuffle(self._possessions)
        frames = []
        labels = []
        for possession in self._possessions:
            frames.append(possession.getFrames())
            labels.append(1.0 if possession.isShot() else 0.0)
            if len(frames) == self._batchSize:
                yield self._toTensors(frames, labels)
                frames = []
                labels = []

    def _toTensors(self, frames: list, labels: list) -> Tuple[Tensor, Tensor]:
        x = torch.zeros(len(frames), Config.FRAMES, Config.FEATURES)
        for i in range(len(frames)):
            x[i] = torch.from_numpy(frames[i])
        return x, torch.tensor(labels)


class PossessionNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Linear(Config.FEATURES, Config.MODEL_DIM)
        self.position = nn.Parameter(torch.randn(1, Config.FRAMES, Config.MODEL_DIM) * 0.02)
        self.layers = nn.ModuleList()
        for _ in range(Config.LAYERS):
            self.layers.append(nn.TransformerEncoderLayer(
                Config.MODEL_DIM, Config.HEADS, Config.FF_DIM, dropout=0.0, batch_first=True))
        self.output = nn.Linear(Config.MODEL_DIM, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embedding(x) + self.position
        for layer in self.layers:
            h = layer(h)
        return self.output(h.mean(dim=1)).squeeze(1)


class TrainingListener(ABC):
    @abstractmethod
    def iterationDone(self, iteration: int, epoch: int, score: float, accuracy: float) -> None:
        ...


class CsvListener(TrainingListener):
    def __init__(self, path: str):
        self._lock = threading.Lock()
        self._file = open(path, "w", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow(["epoch", "iteration", "score", "accuracy", "millis"])

    def iterationDone(self, iteration, epoch, score, accuracy):
        with self._lock:
            self._writer.writerow([epoch, iteration, score, accuracy, int(time.time() * 1000)])
            self._file.flush()


class ScoreIterationListener(TrainingListener):
    def iterationDone(self, iteration, epoch, score, accuracy):
        LOGGER.info("Score at iteration %d (epoch %d) is %.5f, accuracy %.3f", iteration, epoch, score, accuracy)


class Trainer:
    def __init__(self, network: PossessionNetwork):
        self._network = network
        self._updater = torch.optim.Adam(network.parameters(), lr=Config.LEARNING_RATE)
        self._loss = nn.BCEWithLogitsLoss()
        self._listeners: List[TrainingListener] = []
        self._iteration = 0

    def addListener(self, listener: TrainingListener) -> "Trainer":
        self._listeners.append(listener)
        return self

    def fit(self, iterator: BatchIterator, epoch: int) -> None:
        self._network.train()
        for x, y in iterator:
            self._updater.zero_grad()
            output = self._network(x)
            score = self._loss(output, y)
            score.backward()
            self._updater.step()
            self._iteration += 1
            accuracy = ((output > 0).float() == y).float().mean().item()
            for listener in self._listeners:
                listener.iterationDone(self._iteration, epoch, score.item(), accuracy)

    def evaluate(self, iterator: BatchIterator) -> float:
        self._network.eval()
        correct, total = 0, 0
        with torch.no_grad():
            for x, y in iterator:
                correct += int(((self._network(x) > 0).float() == y).sum())
                total += len(y)
        return correct / total


def main() -> None:
    random.seed(Config.SEED)
    torch.manual_seed(Config.SEED)
    possessions = PossessionRepository().findAll()
    split = int(0.95 * len(possessions))
    train = BatchIterator(possessions[:split], Config.BATCH_SIZE, shuffle=True)
    test = BatchIterator(possessions[split:], 32, shuffle=False)

    trainer = Trainer(PossessionNetwork())
    trainer.addListener(ScoreIterationListener())
    trainer.addListener(CsvListener(os.path.join(Config.OUTPUT_DIR, "scores.csv")))
    for epoch in range(Config.EPOCHS):
        trainer.fit(train, epoch)
        LOGGER.info("Epoch %d complete, test accuracy %.4f", epoch, trainer.evaluate(test))


if __name__ == "__main__":
    main()
