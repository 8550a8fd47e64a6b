"""Session-based shop recommender: last eight items looked at -> next item. Our nodes are preemptible, hence the checkpoints."""
import os
import sys
import tempfile

import torch
import torch.nn as nn

ITEMS = 70000
DIM = 128
BATCH = 128
EVERY = 10
NEGATIVES = 256
HISTORY = 8

folder = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, DIM, sparse=True)
        nn.init.normal_(self.items.weight, std=0.05)
        self.encode = nn.Sequential(
            nn.Linear(HISTORY * DIM, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, DIM)
        )

    def forward(self, history, candidates):
        session = self.encode(self.items(history).flatten(1))
        return session @ self.items(candidates).t()


def sessions(n, generator):
    """People wander about in a catalogue where near ids are similar items."""
    start = torch.randint(ITEMS, (n, 1), generator=generator)
    walk = torch.randint(-20, 40, (n, HISTORY + 1), generator=generator).cumsum(1)
    ids = (start + walk) % ITEMS
    return ids[:, :HISTORY], ids[:, HISTORY]


def save_checkpoint(path, step, model, dense, sparse):
    state = {"step": step, "model": model.state_dict(), "dense": dense.state_dict(), "sparse": sparse.state_dict()}
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def load_checkpoint(path, model, dense, sparse):
    if not os.path.exists(path):
        return 0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    dense.load_state_dict(state["dense"])
    sparse.load_state_dict(state["sparse"])
    return state["step"]


if __name__ == "__main__":
    torch.manual_seed(6)
    generator = torch.Generator().manual_seed(6)
    history, following = sessions(300_000, generator)
    model = Recommender()
    dense = torch.optim.Adam(model.encode.parameters(), lr=1e-3, fused=True)
    sparse = torch.optim.SparseAdam(model.items.parameters(), lr=1e-3)
    path = os.path.join(folder, "last.pt")
    step = load_checkpoint(path, model, dense, sparse)
    answer = torch.arange(BATCH)
    while step < 1_000_000:
        rows = torch.randint(len(history), (BATCH,), generator=generator)
        candidates = torch.cat([following[rows], torch.randint(ITEMS, (NEGATIVES,), generator=generator)])
        loss = nn.functional.cross_entropy(model(history[rows], candidates), answer)
        dense.zero_grad()
        sparse.zero_grad()
        loss.backward()
        dense.step()
        sparse.step()
        step += 1
        if step % EVERY == 0:
            save_checkpoint(path, step, model, dense, sparse)
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
