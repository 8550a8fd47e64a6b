"""Functions of torch's, written out by several operators."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

EPS = 1e-3


class Norm(nn.Module):
    def __init__(self, size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.b_2, self.a_2, self.eps = nn.Parameter(torch.zeros(size)), nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class BertNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma, self.beta, self.e = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size)), 1e-4

    def forward(self, x):
        u = x.mean(-1, keepdim=True)
        return self.gamma * ((x - u) / torch.sqrt((x - u).pow(2).mean(-1, keepdim=True) + self.e)) + self.beta


class OfChannels(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.g, self.b = nn.Parameter(torch.ones(1, size, 1, 1)), nn.Parameter(torch.zeros(1, size, 1, 1))

    def forward(self, x):
        var, mean = torch.var(x, dim=1, unbiased=False, keepdim=True), torch.mean(x, dim=1, keepdim=True)
        return (x - mean) / (var + 1e-5).sqrt() * self.g + self.b


class OfSamples(nn.Module):
    """The norm of Conv-TasNet."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(1, size, 1)), nn.Parameter(torch.zeros(1, size, 1))

    def forward(self, x):
        mean = x.mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        var = (torch.pow(x - mean, 2)).mean(dim=1, keepdim=True).mean(dim=2, keepdim=True)
        return self.gamma * (x - mean) / torch.pow(var + EPS, 0.5) + self.beta


class OfEachChannel(nn.Module):
    def forward(self, x):
        mean = x.mean((2, 3), keepdim=True)
        return (x - mean) * ((x - mean) ** 2).mean((2, 3), keepdim=True).add(1e-4).rsqrt()


class Swish(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.sigmoid = nn.Sigmoid()

    def forward(self, x):
        return x * self.sigmoid(x)


class HalfFrozen(Norm):
    """Its deviation is no part of the graph."""

    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True).detach()
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2


class Listed(Norm):
    """What it adds is in a list, which may change."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.added = [1e-6]

    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.added[0]) + self.b_2


class Noisy(Norm):
    """It adds noise, of which there is none at first."""

    noise = 0.0

    def forward(self, x):
        mean, std = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.a_2 * (x - mean) / (std + self.eps) + self.b_2 + self.noise * torch.randn_like(x)


class Counting(Norm):
    """It changes with each call."""

    def forward(self, x):
        self.eps *= 3.0
        return super().forward(x)


def gelu(x, half=0.5):
    return half * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


def exact_gelu(x):
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def mish(x):
    return x * torch.tanh(F.softplus(x))


def softmax(x):
    raised = torch.exp(x - x.max(-1, keepdim=True)[0])
    return raised / raised.sum(-1, keepdim=True)


def of_batch(x):
    return (x - x.mean(0)) / (x.std(0) + 1e-5)


def of_all(x):
    return (x - x.mean()) / (x.var(unbiased=False) + 1e-5).sqrt()


def own(x):
    return torch.tanh(x) * x


def in_place(x):
    return x.mul_(torch.sigmoid(x))


def straight_through(x):
    return x * torch.sigmoid(x).detach()


def masked_softmax(x):
    raised = torch.exp(x)
    return raised / (raised.sum(-1, keepdim=True) + 1e-8)


def clamped(x):
    return (x * torch.sigmoid(x)).clamp(-40.0, 40.0)


def without_nan(x):
    return torch.nan_to_num(x * torch.sigmoid(x))


def calling(x):
    return own(x) * 0.0 + x * torch.sigmoid(x)


def printed(x):
    print(len(x))
    return x * torch.sigmoid(x)
