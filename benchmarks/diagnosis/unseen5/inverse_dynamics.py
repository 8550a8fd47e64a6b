"""Behaviour model for a reaching arm: which torques led from one state to the next?

Transitions are simulated once, then fitted with a plain regression network
(the first stage of an imitation-from-observation pipeline).
"""
import typing as T

import torch
from torch import Tensor, nn


class Replay(T.NamedTuple):
    state: Tensor
    following: Tensor
    torque: Tensor

    @property
    def size(self) -> int:
        return self.state.shape[0]

    def take(self, index: Tensor) -> "Replay":
        return Replay(*(t.index_select(0, index) for t in self))


def accelerate(q: Tensor, dq: Tensor, tau: Tensor) -> Tensor:
    """Two-link planar arm."""
    m1, m2, l1, l2 = 1.0, 0.8, 0.5, 0.4
    c2, s2 = q[:, 1].cos(), q[:, 1].sin()
    a = (m1 + m2) * l1**2 + m2 * l2**2 + 2 * m2 * l1 * l2 * c2 + 0.1
    b = m2 * l2**2 + m2 * l1 * l2 * c2
    d = torch.full_like(a, m2 * l2**2 + 0.1)
    h = m2 * l1 * l2 * s2
    r1 = tau[:, 0] + h * (2 * dq[:, 0] * dq[:, 1] + dq[:, 1] ** 2) - 0.3 * dq[:, 0]
    r2 = tau[:, 1] - h * dq[:, 0] ** 2 - 0.3 * dq[:, 1]
    det = a * d - b * b
    return torch.stack([(d * r1 - b * r2) / det, (a * r2 - b * r1) / det], 1)


def simulate(arms: int, steps: int, dt: float = 0.02) -> Replay:
    q = torch.rand(arms, 2) * 4 - 2
    dq = torch.zeros(arms, 2)
    goal = torch.rand(arms, 2) * 4 - 2
    keep: T.List[T.Tuple[Tensor, Tensor, Tensor]] = []
    for t in range(steps):
        if t % 40 == 0:
            goal = torch.rand(arms, 2) * 4 - 2
        tau = (6 * (goal - q) - 1.5 * dq + 1.5 * torch.randn(arms, 2)).clamp(-8, 8)
        before = torch.cat([q.cos(), q.sin(), dq / 4], 1)
        dq = (dq + dt * accelerate(q, dq, tau)).clamp(-12, 12)
        q = q + dt * dq
        keep.append((before, torch.cat([q.cos(), q.sin(), dq / 4], 1), tau / 8))
    return Replay(*(torch.cat(parts) for parts in zip(*keep)))


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.net(x)


class InverseModel(nn.Module):
    def __init__(self, width: int = 128, depth: int = 2) -> None:
        super().__init__()
        self.enter = nn.Linear(18, width)
        self.body = nn.Sequential(*(Residual(width) for _ in range(depth)))
        self.leave = nn.Linear(width, 2)

    def forward(self, s: Tensor, n: Tensor) -> Tensor:
        return self.leave(self.body(self.enter(torch.cat([s, n, 20 * (n - s)], 1))))


class Learner:
    def __init__(self, model: InverseModel, data: Replay, test: Replay, batch: int = 8192) -> None:
        self.model, self.data, self.test, self.batch = model, data, test, batch
        self.opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.99)

    def update(self, part: Replay) -> Tensor:
        loss = nn.functional.smooth_l1_loss(self.model(part.state, part.following), part.torque, beta=0.1)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        return loss.detach()

    @torch.inference_mode()
    def error(self) -> float:
        return (self.model(self.test.state, self.test.following) - self.test.torque).abs().mean().item()

    def epoch(self) -> float:
        order = torch.randperm(self.data.size)
        whole = self.data.size // self.batch
        losses = [self.update(self.data.take(index)) for index in order[: whole * self.batch].view(whole, self.batch)]
        self.sched.step()
        return torch.stack(losses).mean().item()


def main(epochs: int = 140) -> None:
    torch.manual_seed(90)
    data = simulate(arms=1500, steps=320)
    test = simulate(arms=100, steps=60)
    learner = Learner(InverseModel(), data, test)
    print(f"{data.size} transitions")
    for k in range(epochs):
        loss = learner.epoch()
        note = f"  held-out torque error {8 * learner.error():.3f} Nm" if k % 4 == 3 else ""
        print(f"epoch {k:3d}  loss {loss:.5f}{note}", flush=True)


if __name__ == "__main__":
    main()
