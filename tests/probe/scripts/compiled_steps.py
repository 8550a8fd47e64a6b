"""A compiled training in one of several ways; prints its losses."""

import json
import sys

import torch
from torch import nn

what = sys.argv[1]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.Linear(8, 8), nn.Linear(8, 1)
        self.step = 0
        self.norms = []

    def forward(self, inputs):
        hidden = torch.relu(self.layer(inputs))
        if what == "breaks":
            self.norms.append(hidden.norm().item())  # the break
        if what == "steps":
            self.step += 1
            hidden = hidden / self.step
        return self.out(hidden)


def main():
    torch.manual_seed(0)
    torch._dynamo.config.cache_size_limit = 4
    net = Net()
    if what != "eager":
        dynamic = False if what == "shapes" else None
        net = torch.compile(net, backend="aot_eager", dynamic=dynamic, fullgraph=what == "fullgraph")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for step in range(10):
        inputs = torch.randn(4 + step % 3 if what == "shapes" else 4, 8)
        loss = net(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(json.dumps(losses))


main()
