"""A training whose kernels are known: they do nothing, for so many cycles, in each phase of a step.

Usage: known_kernels.py FORWARD_MS BACKWARD_MS OPTIMIZER_MS HOST_MS STEPS
Prints the milliseconds that each phase's kernel took on the device, measured alone.
"""

import json
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def device_ms(cycles):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, forward, backward):
        ctx.cycles = backward
        torch.cuda._sleep(forward)
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        torch.cuda._sleep(ctx.cycles)
        return gradient, None, None


class Model(nn.Module):
    def __init__(self, forward, backward):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.cycles = forward, backward

    def forward(self, x):
        return Kernel.apply(x @ self.weight, *self.cycles)


class Sleeping(torch.optim.SGD):
    cycles = 0

    def step(self, closure=None):
        torch.cuda._sleep(self.cycles)
        return super().step(closure)


def main():
    forward_ms, backward_ms, optimizer_ms, host_ms = map(float, sys.argv[1:5])
    steps = int(sys.argv[5])
    for _ in range(5):  # the clock goes up
        device_ms(100_000_000)
    cycles_a_ms = 100_000_000 / device_ms(100_000_000)
    forward, backward, optimizer = (int(ms * cycles_a_ms) for ms in (forward_ms, backward_ms, optimizer_ms))
    model = Model(forward, backward).to("cuda")
    stepping = Sleeping(model.parameters(), lr=0.0)
    stepping.cycles = optimizer
    begin = 0.0
    for number, (x,) in enumerate(DataLoader(TensorDataset(torch.randn(steps * 2, 4)), batch_size=2)):
        loss = model(x.to("cuda")).sum()
        loss.backward()
        stepping.step()
        if number % 5 == 4:  # as a log of the loss would: the host is never far ahead
            loss.item()
        if number == 0:  # it loads libraries
            torch.cuda.synchronize()
            begin = time.perf_counter()
            continue
        until = time.perf_counter() + host_ms / 1000
        while time.perf_counter() < until:
            pass
    torch.cuda.synchronize()
    step_ms = 1000 * (time.perf_counter() - begin) / (steps - 1)
    alone = {
        name: device_ms(cycles) if cycles else 0.0
        for name, cycles in (("forward", forward), ("backward", backward), ("optimizer", optimizer))
    }
    print("RESULT " + json.dumps({**alone, "step": step_ms, "steps": steps}))


if __name__ == "__main__":
    main()
