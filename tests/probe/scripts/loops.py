"""Many shapes of training loop, one after another, all in the main process."""

import logging
import os
import random
import sys
import tempfile
import time

import numpy
import torch
from learning import Net, Points, Stream, loss_of, seed, train_step
from telling import part, show, tell
from torch.utils.data import DataLoader

seed()
model = Net()
sgd = torch.optim.SGD(model.parameters(), lr=1e-4)
adam = torch.optim.Adam(model.parameters(), lr=0.001)


def kinds(base):
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def samples_of_the_stack():
    """A list that grows with each sample that the probe takes; None without the probe."""
    stacks = sys.modules.get("_flatout_probe.stacks")
    if stacks is None:
        return None
    taken, sample = [], stacks._Sampler.sample
    stacks._Sampler.sample = lambda self, again: taken.append(again) or sample(self, again)
    return taken


def as_dict(samples):
    return {"points": torch.stack([s[0] for s in samples]), "targets": torch.stack([s[1] for s in samples])}


with part("two epochs"):
    loader = DataLoader(Points(24), batch_size=4, shuffle=True)
    for _ in range(2):
        for batch in loader:
            show(train_step(model, sgd, batch))

with part("validation"):
    train, valid = DataLoader(Points(24), batch_size=4), DataLoader(Points(9), batch_size=3)
    for batch in train:
        show(train_step(model, sgd, batch))
    model.eval()
    with torch.no_grad():
        for points, targets in valid:
            show(loss_of(model(points), targets))
    model.train()

with part("accumulation"):
    sgd.zero_grad()
    for number, (points, targets) in enumerate(DataLoader(Points(24), batch_size=4), 1):
        loss = loss_of(model(points), targets) / 3
        loss.backward()
        show(loss)
        if number % 3 == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            sgd.step()
            sgd.zero_grad()

with part("two optimizers"):
    for points, targets in DataLoader(Points(24), batch_size=4):
        loss_of(model(points), targets).backward()
        sgd.step()
        adam.step()
        adam.zero_grad()

with part("closure"):
    lbfgs = torch.optim.LBFGS(model.parameters(), lr=1e-6, max_iter=3)
    evaluations = 0
    for points, targets in DataLoader(Points(8), batch_size=4):

        def closure(points=points, targets=targets):
            global evaluations
            evaluations += 1
            lbfgs.zero_grad()
            loss = loss_of(model(points), targets)
            loss.backward()
            return loss

        show(lbfgs.step(closure))
    tell(evaluations=evaluations)

with part("iterable"):
    for batch in DataLoader(Stream(10), batch_size=3):
        show(train_step(model, sgd, batch))

with part("unbatched"):
    for batch in DataLoader(Points(5), batch_size=None):
        show(train_step(model, sgd, batch))

with part("dictionary"):
    for batch in DataLoader(Points(8), batch_size=4, collate_fn=as_dict):
        show(train_step(model, sgd, (batch["points"], batch["targets"])))

with part("left early"):
    for number, batch in enumerate(DataLoader(Points(24), batch_size=4)):
        show(train_step(model, sgd, batch))
        if number == 1:
            break

with part("no loader"):
    for _ in range(5):
        show(train_step(model, sgd, (torch.randn(4, 4), torch.zeros(4, 1))))

with part("transforms on the training thread"):

    class Shift(torch.nn.Module):
        def forward(self, points):
            return points + 1.0

    shift = Shift()
    for points, targets in DataLoader(Points(8), batch_size=4):
        show(train_step(model, sgd, (torch.stack([shift(one) for one in points]), targets)))

with part("autocast"):
    if hasattr(torch.amp, "GradScaler"):
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        for points, targets in DataLoader(Points(12), batch_size=4):
            sgd.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(model(points), targets)
            scaler.scale(loss).backward()
            scaler.step(sgd)
            scaler.update()
            show(loss)

with part("outputs"), tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "last.pt")
    torch.save(model.state_dict(), path)
    tell(checkpoint=path, bytes=os.path.getsize(path))
    print("printed by the script")
    logging.getLogger("script").warning("logged by the script")
    for name in ("metrics.csv", "state.bin"):
        with open(os.path.join(os.path.dirname(path), name), "w") as file:
            os.fsync(file.fileno())

with part("asleep"):
    taken = samples_of_the_stack()
    before = random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    for _ in range(120):  # until there are some samples, however slow the machine is
        time.sleep(0.5)
        if taken is None or len(taken) > 3:
            break
    assert before == (random.getstate(), numpy.random.get_state()[1].tolist(), torch.get_rng_state().tolist())

tell(
    calls=[kind.__name__ for kind in kinds(torch.nn.Module) if "__call__" in vars(kind) and "torch" not in str(kind)],
    restored=torch.nn.Module.__call__ is torch.nn.Module._wrapped_call_impl,
    hooks=len(model._forward_hooks) + len(model._forward_pre_hooks),
    attributes=sorted(vars(model)),
)
show(*(p.sum() for p in model.parameters()))
