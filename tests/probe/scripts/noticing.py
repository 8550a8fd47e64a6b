"""What a script could notice of the probe: it prints all of it, and must print the same with and without."""

import copy
import functools
import io
import logging
import pickle
import sys
import traceback
import warnings

import torch
import torch.fx
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Trainer:
    log = print


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        for level in range(1, 6):
            warnings.warn(f"forward {level}", stacklevel=level)
        return self.layer(x)


class Own(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure=None):
        warnings.warn("step", stacklevel=3)
        for group in self.param_groups:
            for weight in group["params"]:
                weight.data.add_(weight.grad, alpha=-0.1)


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("backward")


class Points(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        for level in range(1, 5):
            warnings.warn(f"sample {level}", stacklevel=level)
        return torch.ones(4)


class NoPoints(Points):
    def __getitem__(self, index):
        raise KeyError("no such picture")


class Stream(IterableDataset):
    def __iter__(self):
        yield torch.ones(4)
        raise ValueError("stream")


class Loader(DataLoader):
    """Equal to any other, and not to be hashed."""

    def __eq__(self, other):
        return True


class Shown:
    def __str__(self):
        warnings.warn("shown", stacklevel=2)
        return "shown"


class Handler(logging.Handler):
    def emit(self, record):
        warnings.warn("handler", stacklevel=5)


class Deep(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def forward(self, x, depth):
        return x * self.weight if depth == 0 else self(x, depth - 1)


def collate(samples):
    raise ValueError("collate")


def told(call):
    try:
        call()
    except Exception:
        sys.stderr.write(traceback.format_exc())


def deepest(net):
    depth = 10
    try:
        while True:
            net(torch.ones(1), depth)
            depth += 1
    except RecursionError:
        return depth


net = Net()
optimizer = Own(net.parameters())
logging.getLogger().addHandler(Handler())
for _ in range(3):
    for batch in Loader(Points(), 2):
        optimizer.zero_grad()
        net(batch).sum().backward()
        optimizer.step()
        print(Shown())
        logging.warning("step")
Trainer().log("unbound", repr(print), callable(print), isinstance(print, type(len)))

for dataset, options in ((NoPoints(), {}), (Stream(), {}), (Points(), {"collate_fn": collate})):
    told(functools.partial(list, DataLoader(dataset, 2, **options)))
told(lambda: Failing.apply(net(torch.ones(2, 4))).sum().backward())
told(lambda: net(torch.ones(3)))
told(lambda: torch.nn.utils.clip_grad_norm_(5, 1.0))

deep = Deep()
for _ in range(4):
    deep(torch.ones(1), 3).backward()
print("deepest", deepest(deep))

linear = torch.nn.Linear(4, 4)
for _ in range(4):
    linear(torch.ones(2, 4)).sum().backward()
graph = torch.fx.symbolic_trace(torch.nn.Sequential(linear, torch.nn.ReLU()))
print([node.op for node in graph.graph.nodes])

original = torch.nn.Module.__call__
calls = []


def counted(self, *args, **kwargs):
    calls.append(type(self).__name__)
    return original(self, *args, **kwargs)


torch.nn.Module.__call__ = counted
for _ in range(6):
    linear(torch.ones(2, 4)).sum().backward()
print(calls, torch.nn.Module.__call__ is counted)
torch.nn.Module.__call__ = original

try:
    import cloudpickle
    import dill
except ImportError:  # not in every interpreter that this runs in
    dumps = [pickle.dumps]
else:
    dumps = [cloudpickle.dumps, dill.dumps]
for dump in dumps:
    for thing in (net, Net) if dump is not pickle.dumps else (net,):
        data = dump(thing)
        print(dump.__module__, b"flatout" in data)
if len(dumps) > 1:
    print(b"flatout" in cloudpickle.dumps((optimizer, Own, Trainer)))
buffer = io.BytesIO()
torch.save([net, optimizer], buffer)
if hasattr(torch, "export") and hasattr(torch.export, "save") and sys.version_info >= (3, 11):
    quiet = torch.nn.Sequential(torch.nn.Linear(4, 4))
    quiet(torch.ones(2, 4)).sum().backward()
    torch.export.save(torch.export.export(quiet, (torch.ones(2, 4),)), buffer)
print(b"flatout" in buffer.getvalue().lower(), vars(copy.deepcopy(net)).keys() == vars(Net()).keys())
print("__call__" in vars(Net), "step" in vars(Own), Own.step.__module__)
