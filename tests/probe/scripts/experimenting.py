"""A small training that asks for experiments by itself, and says at the end in what state they left it.

Arguments: what is on (comma-separated), and the number of steps at which it asks.
"""

import gc
import json
import os
import sys
import time
import tracemalloc
from tracemalloc import take_snapshot

import torch

on, asked_at = sys.argv[1].split(","), int(sys.argv[2])
torch.manual_seed(0)
net = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(4)), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
before = torch.nn.Linear(8, 8)  # in no optimizer
before.requires_grad_("unfrozen" in on)
wide = torch.nn.Linear(500, 1000)  # in no optimizer either
kept: dict = {}
norms: list = []


def keep(module, args, output):
    """The loss needs it: a step without the hook would fail."""
    kept[id(module)] = output.pow(2).mean()


def tracer(frame, event, argument):
    return tracer


def ended():
    recorder = sys.modules.get("_flatout_probe.recorder")
    return recorder is not None and bool(recorder.REC.flags & 4)


def batches():
    if "padded" in on:
        kept_places = torch.arange(12) < torch.randint(2, 9, (64, 1))
        data = torch.utils.data.TensorDataset(torch.rand(64, 12, 8) * kept_places[..., None], kept_places)
        while True:
            for rows, _ in torch.utils.data.DataLoader(data, 16):
                yield rows
    if "loader" in on:
        data = torch.utils.data.TensorDataset(torch.randn(64, 8))
        while True:
            for (batch,) in torch.utils.data.DataLoader(data, 16):
                yield batch
    while True:
        yield torch.randn(16, 8)


def train():
    losses = []
    for number, batch in enumerate(batches()):
        if ended() or number == 1_000_000:  # they take 10 s, however fast a step is
            break
        if number == asked_at and "FLATOUT_RUN" in os.environ:
            limits = sys.modules["_flatout_probe.experiments.changed_steps"]
            for name in ("LIMIT_NS", "LIMIT_WITH_BATCHES_NS"):  # steps of a busy machine take longer
                setattr(limits, name, 10 * getattr(limits, name))
            with open(os.path.join(os.environ["FLATOUT_RUN"], "control"), "r+b") as file:
                file.write(bytes([3]))
        if "attacked" in on:
            batch.requires_grad_()
        if "discarded" in on or ("seldom discarded" in on and number % 6 == 0):
            batch.requires_grad_()
            net(batch).mean().backward()
            batch = batch.detach()
        loss = net(before(batch)).pow(2).mean()
        if "hooks" in on:
            loss = loss + sum(kept.values())
            kept.clear()
        if "distributions" in on:
            loss = loss - torch.distributions.Normal(batch, 1.0).log_prob(batch).mean()
        if "gc" in on:
            gc.collect()
        if "slow" in on:
            time.sleep(2.5)
        if "tracemalloc" in on and number % 50 == 0:
            take_snapshot()
        optimizer.zero_grad()
        before.zero_grad()
        if "kinds" in on and number % 630 < 30:
            loss = loss + wide(torch.ones(1000, 500)).mean()
        if "anomaly" in on:
            with torch.autograd.detect_anomaly(), torch.autograd.profiler.record_function("backward"):
                loss.backward()
        else:
            loss.backward()
        if "clipped" in on:
            torch.nn.utils.clip_grad_norm_([*before.parameters(), *net.parameters()], 0.1)
        optimizer.step()
        losses.append(loss.item())
        if "attacked" in on:
            losses[-1] += batch.grad.norm().item()
        if "norms" in on:
            norms.append(sum(weight.grad.norm().item() for weight in before.parameters()))
        if "by hand" in on:
            with torch.no_grad():
                before.bias.sub_(before.bias.grad, alpha=0.01)
                before.weight.sub_(before.weight.grad, alpha=0.01)
        if number == 40 and "FLATOUT_RUN" not in os.environ:
            break
    return losses


if "looked at" in on:
    for weight in before.parameters():
        weight.register_hook(lambda gradient: norms.append(gradient.norm().item()))
if "hooks" in on:
    for part in net:
        part.register_forward_hook(keep)
if "tracemalloc" in on:
    tracemalloc.start(2)
if "deterministic" in on:
    torch.use_deterministic_algorithms(True)
if "settrace" in on:
    sys.settrace(tracer)
if "setprofile" in on:
    sys.setprofile(tracer)
threads = torch.get_num_threads()
profiler = torch.autograd.profiler.profile(enabled="profiler" in on)
profiler.__enter__()
losses = train()
state = {
    "anomaly": torch.is_anomaly_enabled(),
    "anomaly function": "built-in" in repr(torch.set_anomaly_enabled),
    "threads": torch.get_num_threads() == threads,
    "trace": sys.gettrace() is tracer,
    "profile": sys.getprofile() is tracer,
    "tracemalloc": (tracemalloc.is_tracing(), tracemalloc.get_traceback_limit()),
    "deterministic": torch.are_deterministic_algorithms_enabled(),
    "validate": torch.distributions.Distribution._validate_args,
    "hooks": all(hook is keep for part in net for hook in part._forward_hooks.values()),
    "callbacks": len(gc.callbacks),
    "backward": torch.autograd.backward.__qualname__,
}
sys.settrace(None)
sys.setprofile(None)
profiler.__exit__(None, None, None)
print(json.dumps({"state": state, "losses": losses[:40], "over": ended()}))
