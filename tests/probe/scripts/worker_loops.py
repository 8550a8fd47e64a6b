"""Loops over loaders with two workers, started as the argument says."""

import sys
import time

import torch
from learning import Net, Points, Stream, seed, train_step
from telling import part, show
from torch.utils.data import DataLoader

# A worker that has not ended by then is terminated, and notes no end: on a busy machine torch's 5 s are few.
torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 60.0


def load_a_table(worker):
    time.sleep(0.2)


def main(method):
    seed()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    common = {"batch_size": 4, "num_workers": 2, "multiprocessing_context": method}

    with part("persistent"):
        loader = DataLoader(Points(24), shuffle=True, persistent_workers=True, prefetch_factor=3, **common)
        for _ in range(2):
            for batch in loader:
                show(train_step(model, optimizer, batch))
    loader._iterator._shutdown_workers()
    if method != "fork":  # every worker of the others imports torch anew
        return

    with part("new workers each epoch"):
        loader = DataLoader(Points(24), shuffle=True, worker_init_fn=load_a_table, **common)
        for _ in range(2):
            for batch in loader:
                show(train_step(model, optimizer, batch))

    with part("left early"):
        for number, batch in enumerate(DataLoader(Points(40), **common)):
            show(train_step(model, optimizer, batch))
            if number == 1:
                break

    with part("iterable"):
        for batch in DataLoader(Stream(16), **common):
            show(train_step(model, optimizer, batch))

    with part("any order"):
        try:
            loader = DataLoader(Points(24), in_order=False, **common)
        except TypeError:  # an older torch
            loader = DataLoader(Points(24), **common)
        for batch in loader:
            train_step(model, optimizer, batch)


if __name__ == "__main__":
    main(sys.argv[1])
