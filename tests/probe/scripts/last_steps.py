"""A small training for the last steps of a profile. What must not happen in them leaves a file in this folder.

Arguments: a kind of loader or of fault, then anything.
"""

import sys
from collections import namedtuple

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

KIND = sys.argv[1]
BATCH, FEATURES = 4, 8
Pair = namedtuple("Pair", "points labels")


def leave(name, text):
    """Say that something has happened, in a file that is open from the beginning."""
    traces[name].write(text)
    traces[name].flush()


traces = {name: open(name, "w") for name in ("handler", "epoch")}  # noqa: SIM115 - open until the end


class Points(Dataset):
    def __len__(self):
        return 64 if KIND == "short" else 100_000

    def __getitem__(self, index):
        return torch.full((FEATURES,), float(index % 7)), torch.tensor([1.0])


class Stream(IterableDataset):
    def __iter__(self):
        for number in range(100_000):
            yield torch.full((FEATURES,), float(number % 7)), torch.tensor([1.0])


def collate(samples):
    points, labels = (torch.stack(parts) for parts in zip(*samples, strict=True))
    if KIND == "dict":
        return {
            "points": points,
            "labels": labels,
            "names": [str(row) for row in range(len(points))],
            "nested": (points,),
        }
    if KIND == "named":
        return Pair(points, labels)
    if KIND in ("padded", "fixed_length"):
        lengths = torch.arange(2, 2 + len(points))
        mask = torch.arange(32) < lengths[:, None]
        return {"points": points, "labels": labels, "mask": mask, "rows": torch.where(mask, 1.0 + points[:, :1], 0.0)}
    if KIND == "unusual":
        return {"points": points, "labels": labels, "count": len(points)}
    return points, labels


def parts(batch):
    if isinstance(batch, dict):
        if KIND == "dict":
            assert len(batch["names"]) == len(batch["points"]) == len(batch["nested"][0])
        return batch["points"], batch["labels"]
    return batch


def of_rows(batch, net):
    """A loss that computes padding; with a fixed length, it does not take a shorter batch."""
    rows = batch["rows"] + torch.zeros(32) if KIND == "fixed_length" else batch["rows"]
    return (net[0].weight.mean() * rows * batch["mask"]).mean()


class Recurrent(torch.nn.Module):
    """Keeps a hidden state for a fixed number of samples, as stateful recurrent networks do."""

    def __init__(self):
        super().__init__()
        self.cell = torch.nn.Linear(FEATURES, FEATURES)
        self.hidden = torch.zeros(BATCH, FEATURES)

    def forward(self, points):
        self.hidden = (self.cell(points) + self.hidden).tanh().detach()
        return self.cell(points + self.hidden)


def loader():
    if KIND == "stream":
        return DataLoader(Stream(), BATCH, num_workers=1, collate_fn=collate)
    workers = 0 if KIND in ("no_workers", "short") else 1
    return DataLoader(Points(), BATCH, shuffle=True, num_workers=workers, collate_fn=collate)


def train():
    torch.manual_seed(0)
    net = (
        Recurrent() if KIND == "hidden" else torch.nn.Sequential(torch.nn.Linear(FEATURES, 16), torch.nn.Linear(16, 8))
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    seen = 0
    while True:
        for batch in loader():
            points, labels = parts(batch)
            if KIND == "in_place":
                # A batch that is handed out twice would have been shifted already.
                assert labels.eq(1.0).all() and points.max() < 7, "the batch was changed before"
                points += 10
                labels -= 1
            optimizer.zero_grad()
            loss = net(points).pow(2).mean()
            if KIND in ("padded", "fixed_length"):
                loss = loss + of_rows(batch, net)
            if KIND == "loop_only":
                loss = loss + (torch.zeros(BATCH, 1) + labels).mean()
            loss.backward()
            optimizer.step()
            seen += 1
            if KIND == "checkpoint" and seen % 50 == 0 and len(points) > BATCH:
                torch.save(net.state_dict(), "doubled.pt")
            if KIND == "file" and len(points) > BATCH:
                open("doubled.pkl", "w").close()
            if KIND == "logs":
                with open("steps.csv", "a") as log:
                    log.write(f"{seen}\n")
        leave("epoch", "one more\n")


if __name__ == "__main__":
    try:
        train()
    except Exception as error:
        leave("handler", repr(error))
        raise
