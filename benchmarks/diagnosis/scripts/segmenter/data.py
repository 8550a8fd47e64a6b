"""Slides and their labels, brought to one size."""

import numpy as np
import torch
from scipy import ndimage
from settings import CLASSES, SIZE, SOURCE
from torch.utils.data import Dataset


def one_hot(labels):
    return np.stack([(labels == label) for label in range(CLASSES)]).astype(np.float32)


class Slides(Dataset):
    def __init__(self, count=12):
        draw = np.random.default_rng(4)
        self.slides = draw.random((count, SOURCE, SOURCE)).astype(np.float32)
        self.labels = draw.integers(0, CLASSES, (count, SOURCE, SOURCE))

    def __len__(self):
        return 20_000

    def __getitem__(self, index):
        index %= len(self.slides)
        factor = SIZE / SOURCE
        slide = ndimage.zoom(self.slides[index], factor, order=3)
        labels = ndimage.zoom(one_hot(self.labels[index]), (1, factor, factor), order=1)
        return torch.from_numpy(slide).unsqueeze(0), torch.from_numpy(labels.argmax(0))
