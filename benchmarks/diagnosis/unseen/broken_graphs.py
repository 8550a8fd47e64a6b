"""Learned integrator for a chain of coupled oscillators.

State of WIDTH oscillators is pushed through DEPTH residual cells; the target is the state after a short simulated time.
"""
import torch
from torch import nn

WIDTH = 48
DEPTH = 12
BATCH = 64
STEPS = 200000


def simulate(n, generator, dt=0.02, steps=60):
    q = torch.randn(n, WIDTH, generator=generator)
    p = torch.randn(n, WIDTH, generator=generator)
    q0, p0 = q.clone(), p.clone()
    for _ in range(steps):
        pull = torch.roll(q, 1, 1) + torch.roll(q, -1, 1) - 2 * q - 0.3 * torch.sin(q)
        p = p + dt * pull
        q = q + dt * p
    return torch.cat([q0, p0], 1), torch.cat([q, p], 1)


class Cell(nn.Module):
    """A gated residual step with a soft limiter on the way in and on the way out."""

    def __init__(self, size):
        super().__init__()
        self.mix = nn.Linear(size, 2 * size)
        self.gain = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.limit = nn.Parameter(torch.full((size,), 4.0))

    def forward(self, x):
        scale = x.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
        h = x * scale * self.gain + self.bias
        if h.abs().max().item() > 50.0:
            h = h.clamp(-50.0, 50.0)
        h = self.limit * torch.tanh(h / self.limit)
        value, gate = self.mix(h).chunk(2, -1)
        if not torch.isfinite(gate).all():
            raise FloatingPointError("gate has left the numbers")
        y = torch.sin(value) * torch.sigmoid(gate) + 0.1 * value * torch.exp(-gate * gate)
        if y.std() > 20.0:
            y = y / y.std()
        y = y - y.mean(-1, keepdim=True)
        return x + 0.5 * self.limit * torch.tanh(y / self.limit)


class Integrator(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(2 * WIDTH, 2 * WIDTH)
        self.cells = nn.ModuleList(Cell(2 * WIDTH) for _ in range(DEPTH))
        self.out = nn.Linear(2 * WIDTH, 2 * WIDTH)

    def forward(self, state):
        h = self.inp(state)
        for cell in self.cells:
            h = cell(h)
        return state + self.out(h)


def main():
    g = torch.Generator().manual_seed(2)
    torch.manual_seed(2)
    before, after = simulate(20000, g)
    net = Integrator()
    # runs are compared bit by bit with those of other machines, hence no generated kernels
    fast = torch.compile(net, backend="aot_eager")
    opt = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    print("compiling, the first step takes a while", flush=True)
    for step in range(STEPS):
        pick = torch.randint(len(before), (BATCH,), generator=g)
        loss = nn.functional.mse_loss(fast(before[pick]), after[pick])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 200 == 0:
            print(step, "mse", loss.item(), flush=True)


if __name__ == "__main__":
    main()
