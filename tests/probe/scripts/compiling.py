"""A model compiled in several ways: prints losses and how many graphs that made."""

import sys

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.rest = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(16, 4))

    def forward(self, x):
        return self.rest(self.first(x.to(torch.float32))).to(torch.float64)


def train(kind):
    torch.manual_seed(0)
    torch._dynamo.reset()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    options = {"fullgraph": True, "backend": sys.argv[1]}
    call = net
    if kind == "module":
        call = torch.compile(net, **options)
    elif kind == "in place" and hasattr(net, "compile"):  # not in torch 2.1
        net.compile(**options)
    elif kind == "function":
        call = torch.compile(lambda x: net(x), **options)
    elif kind == "hooks":
        net.first.register_forward_hook(lambda module, given, result: 2 * result)
        call = torch.compile(lambda x: net(x), **options)
    elif kind == "part":
        net.rest = torch.compile(net.rest, **options)
    batch = torch.randn(32, 8)
    for step in range(12):
        if step == 6:
            net.eval()
            with torch.no_grad():
                call(batch)
            net.train()
        loss = call(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(kind, loss.item().hex())
    print(kind, torch._dynamo.utils.counters["stats"]["unique_graphs"])


for kind in ("module", "in place", "function", "hooks", "part", "eager"):
    train(kind)

if hasattr(torch._dynamo.config, "reorderable_logging_functions"):
    torch._dynamo.reset()
    torch._dynamo.config.reorderable_logging_functions.add(print)

    @torch.compile(fullgraph=True, backend=sys.argv[1])
    def telling(x):
        x = x + 1
        print("inside")
        return 2 * x

    print(telling(torch.ones(2)), torch._dynamo.utils.counters["stats"]["unique_graphs"])
