"""Trainings in one process, each without and with a live trial: what each saw, as a line of JSON.

It sets plans in the probe's own modules, so that the interpreter starts once for all of them. Syntax of Python 3.9.
"""

import json
import random
import sys
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, default_collate

# Steps take 2 ms or more: passes of 100 steps are longer than a block, those of 6 are shorter.
PLAN = {"block_s": 0.04, "look_s": 0.04, "pass_s": 0.06, "least_batches": 4, "turns": 1, "order": [0, 1, 1, 0]}
PLAN["threshold"] = 1e9  # no gain: blocks are not left out before both pairs are there
BY_PASS = {**PLAN, "block_s": 0.4, "look_s": 0.4, "pass_s": 0.4}
LONGEST = 1000  # short passes: more than the blocks need on any machine
MORE = {"num_workers": 2, "persistent_workers": True}


class Numbers(Dataset):
    """Slow numbers."""

    def __init__(self, count=400, bad=None):
        self.count, self.bad = count, bad

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.0005)
        if index == self.bad:
            raise KeyError(f"sample {index}")
        return torch.full((4,), float(index)), index


class Stream(IterableDataset):
    """The same as a stream."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        for index in range(self.count):
            time.sleep(0.0005)
            yield torch.full((4,), float(index)), index


class Repeat:
    """A batch sampler without an end."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __len__(self):
        return len(self.sampler)

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class Endless(DataLoader):
    """One iterator for all passes, as several libraries have it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Repeat(self.batch_sampler))
        self.iterator = super().__iter__()

    def __iter__(self):
        for _ in range(len(self.batch_sampler)):
            yield next(self.iterator)


class OwnPasses(DataLoader):
    """Makes its iterators without ``DataLoader.__iter__``."""

    def __iter__(self):
        return self._get_iterator()


class Training:
    """A training that keeps the samples of each step.

    Args:
        over: says whether to end, where passes are short; their number is ``done`` then.
    """

    def __init__(self, over):
        self.over, self.done = over, 0
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.0)
        self.seen = []

    def step(self, x, indices):
        self.optimizer.zero_grad()
        self.model(x.view(-1, 4)).mean().backward()
        self.optimizer.step()
        self.seen.append(torch.as_tensor(indices).view(-1).tolist())

    def passes(self, loader, count):
        for _ in range(count):
            for x, indices in loader:
                self.step(x, indices)


def init_worker(worker):
    """A user's own."""


def default(training):
    training.passes(DataLoader(Numbers(), 4), 3)


def shuffled(training):
    training.passes(DataLoader(Numbers(), 4, shuffle=True, num_workers=1), 3)


def persistent(training):
    training.passes(DataLoader(Numbers(), 4, shuffle=True, num_workers=2, persistent_workers=True), 3)


def batch_sampler(training):
    backwards = BatchSampler(SequentialSampler(range(400)), 4, False)
    training.passes(DataLoader(Numbers(), batch_sampler=list(backwards)[::-1]), 3)


def generator(training):
    own = torch.Generator().manual_seed(3)
    training.passes(DataLoader(Numbers(), 4, shuffle=True, generator=own, num_workers=1), 3)


def worker_init(training):
    training.passes(DataLoader(Numbers(), 4, num_workers=1, worker_init_fn=init_worker), 3)


def single_samples(training):
    training.passes(DataLoader(Numbers(), None, sampler=range(0, 400, 2), num_workers=1), 2)


def made_anew(training):
    data = Numbers()
    for _ in range(3):
        training.passes(DataLoader(data, 4, shuffle=True, num_workers=1), 1)


def in_turn(training):
    one, two = (DataLoader(Numbers(), 4, shuffle=True, num_workers=1) for _ in range(2))
    validation = DataLoader(Numbers(8), 4)
    for _ in range(3):
        for number, ((x, i), (y, j)) in enumerate(zip(one, two)):  # noqa: B905 - Python 3.9 has no strict
            training.step(torch.cat([x, y]), torch.cat([i, j]))
            if number == 50:
                training.seen += [k.tolist() for _, k in validation]


def endless(training):
    training.passes(Endless(Numbers(), 4, shuffle=True, num_workers=1), 4)


def left_early(training):
    loader = DataLoader(Numbers(), 4, shuffle=True, num_workers=1)
    for _ in range(6):
        for number, (x, indices) in enumerate(loader):
            training.step(x, indices)
            if number == 60:
                break


def until_over(training, loader):
    while not training.over(training.done):
        training.passes(loader, 1)
        training.done += 1


def short(training, **own):
    until_over(training, DataLoader(Numbers(24), 4, shuffle=True, **own))


def short_one_worker(training):
    short(training, num_workers=1)


def short_persistent(training):
    short(training, num_workers=2, persistent_workers=True)


def short_no_worker(training):
    short(training)


def short_stream(training):
    until_over(training, DataLoader(Stream(24), 4, num_workers=1))


def stream(training):
    training.passes(DataLoader(Stream(400), 4, num_workers=1), 2)


def own_passes(training):
    training.passes(OwnPasses(Numbers(24), 4, shuffle=True, num_workers=1), 40)


def no_pickle(training):
    collate = lambda samples: default_collate(samples)  # noqa: E731 - spawn cannot pickle it
    training.passes(DataLoader(Numbers(), 4, shuffle=True, num_workers=1, collate_fn=collate), 2)


def bad_sample(training):
    try:
        training.passes(DataLoader(Numbers(1600, bad=1596), 4, num_workers=1), 1)
    except KeyError as error:
        training.seen.append("sample 1596" in str(error))


def threads(training):
    training.passes(DataLoader(Numbers(), 4), 3)
    training.seen.append(torch.get_num_threads())


def few_steps(training):
    training.passes(DataLoader(Numbers(40), 4, num_workers=1), 1)


SCENARIOS = [
    (default, MORE, PLAN),
    (shuffled, {"num_workers": 3, "prefetch_factor": 3}, PLAN),
    (persistent, {"num_workers": 0}, PLAN),
    (batch_sampler, {"num_workers": 2}, PLAN),
    (generator, {"start_method": "forkserver", "worker_threads": 1}, {**PLAN, "order": [1, 0]}),
    (worker_init, {"num_workers": 2}, PLAN),
    (single_samples, {"num_workers": 2}, PLAN),
    (made_anew, MORE, PLAN),
    (in_turn, {"num_workers": 2}, PLAN),
    (endless, {"num_workers": 2}, PLAN),
    (left_early, MORE, PLAN),
    (short_one_worker, MORE, BY_PASS),
    (short_persistent, {"num_workers": 1}, BY_PASS),
    (short_no_worker, MORE, BY_PASS),
    (short_stream, {"prefetch_factor": 4}, BY_PASS),
    (stream, {"prefetch_factor": 4}, PLAN),
    (shuffled, {"persistent_workers": True}, PLAN),
    (default, {"prefetch_factor": 4}, PLAN),
    (own_passes, {"num_workers": 2}, BY_PASS),
    (no_pickle, {"start_method": "spawn"}, PLAN),
    (bad_sample, {"num_workers": 2}, PLAN),
    (threads, {"threads": 3}, PLAN),
    (few_steps, {"num_workers": 2}, {**PLAN, "block_s": 60.0, "look_s": 60.0, "pass_s": 60.0}),
    (shuffled, {"in_order": False, "num_workers": 2}, PLAN),
]


def run(scenario, over):
    """What one training saw, the next random numbers, and its short passes."""
    torch.manual_seed(0)
    random.seed(0)
    training = Training(over)
    scenario(training)
    return (training.seen, torch.rand(1).item(), random.random()), training.done


def main():
    probe = sys.modules["_flatout_probe.recorder"].REC
    kind = sys.modules["_flatout_probe.live.trial"].LiveTrial
    wanted = sys.argv[1:]
    for scenario, settings, plan in SCENARIOS:
        name = " ".join([scenario.__name__, *settings])
        if wanted and scenario.__name__ not in wanted:
            continue
        probe.process.pop("live", None)
        probe.live = trial = kind({**plan, "candidates": [settings]})
        switched, passes = run(scenario, lambda done: trial.over or done == LONGEST)  # noqa: B023 - called in its turn
        probe.live = None
        plain, _ = run(scenario, lambda done: done == passes)  # noqa: B023
        told = probe.process.get("live") or {}
        print(
            json.dumps(
                {
                    "name": name,
                    "same": plain == switched,
                    "same samples": sorted(map(str, plain[0])) == sorted(map(str, switched[0])),
                    "steps": len(switched[0]),
                    "blocks": max(trial.turn, 0),
                    "passes": trial.by_pass,
                    "failed": told.get("failed") or (told.get("refused") or {}).get(0),
                    "fault": probe.process.get("fault"),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
