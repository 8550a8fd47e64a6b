"""Breaks one piece of the probe after another in a training that goes on; the probe is switched on again each time."""

import sys
import time

import torch
from learning import Net, Points, seed, train_step
from telling import show, tell
from torch.utils.data import DataLoader

probe = {name.rpartition(".")[2]: module for name, module in sys.modules.items() if name.startswith("_flatout_probe")}


class PlantedError(Exception):
    pass


def broken(*args, **kwargs):
    raise PlantedError("planted in the probe")


class FakeCuda:
    """A device that is there, and whose first event cannot be made."""

    is_initialized = staticmethod(lambda: True)
    is_current_stream_capturing = staticmethod(lambda: False)
    Event = broken


def pieces():
    recorder = probe["recorder"].REC
    yield "emit", recorder, "emit", broken
    yield "names.text", recorder.names, "text", broken
    yield "command", recorder.control, "command", broken
    yield "live", recorder.file, "live", broken
    yield "describe", probe["loaders"], "_describe", broken
    yield "samples_in", probe["loaders"], "samples_in", broken
    yield "user_line", probe["loaders"], "user_line", broken
    yield "is_grad_enabled", probe["modules"], "is_grad_enabled", broken
    yield "thread_times", probe["fetching"], "thread_times", broken
    yield "process_io", probe["fetching"], "process_io", broken
    yield "batch_bits", probe["events"], "batch_bits", broken
    yield "device", probe["device"], "_cuda", FakeCuda
    yield "stack sampler", probe["stacks"], "describe_frame", broken


def train(model, optimizer, workers):
    for batch in DataLoader(Points(16), batch_size=4, shuffle=True, num_workers=workers):
        show(train_step(model, optimizer, batch))
        if probe:
            time.sleep(0.025)  # the counters are not published at every step


def main():
    seed()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    workers = int(sys.argv[1])
    rounds = list(pieces()) if probe else [(None,) * 4] * 13
    train(model, optimizer, workers)
    for name, owner, attribute, replacement in rounds:
        if not probe:
            train(model, optimizer, workers)
            continue
        recorder = probe["recorder"].REC
        recorder.process.pop("fault", None)
        recorder.on = True
        probe["device"].present = name == "device"
        real = getattr(owner, attribute)
        setattr(owner, attribute, replacement)
        if name == "stack sampler":
            probe["stacks"].start()
            until = time.monotonic() + 60
            while "fault" not in recorder.process and time.monotonic() < until:
                time.sleep(0.02)
        train(model, optimizer, workers)
        tell(**{"fault " + name: recorder.process.get("fault")})
        probe["stacks"].stop()
        setattr(owner, attribute, real)


main()
