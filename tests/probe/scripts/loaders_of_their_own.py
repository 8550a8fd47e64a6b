"""Loaders whose iterators are not made in DataLoader.__iter__, or live longer than a pass, and one built anew."""

import torch
from learning import Net, Points, seed, train_step
from telling import part, show
from torch.utils.data import DataLoader

seed()
model = Net()
sgd = torch.optim.SGD(model.parameters(), lr=1e-4)


class Endless(DataLoader):
    """Keeps one iterator for all passes, as ultralytics does."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.kept = None

    def __iter__(self):
        if self.kept is None:
            self.kept = self._get_iterator()
        for _ in range(len(self) // 2):
            yield next(self.kept)


with part("endless"):
    loader = Endless(Points(24), batch_size=4)
    for _ in range(2):
        for batch in loader:
            show(train_step(model, sgd, batch))

with part("endless with workers"):
    loader = Endless(Points(24), batch_size=4, num_workers=1)
    for _ in range(2):
        for batch in loader:
            show(train_step(model, sgd, batch))
    del loader

with part("built anew"):
    for _ in range(3):
        for batch in DataLoader(Points(8), batch_size=4):
            show(train_step(model, sgd, batch))
