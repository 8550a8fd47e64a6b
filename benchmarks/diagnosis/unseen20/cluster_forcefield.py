"""A SchNet-like neural force field for small binary Morse clusters.

Energies and forces of perturbed clusters (npz, arrays padded per frame); the network is
a continuous-filter message-passing net and forces are the gradient of its energy.
"""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, random_split

CUTOFF = 5.0
N_SPECIES = 2
DEPTH = np.array([[1.0, 0.6], [0.6, 0.8]])
R_EQ = np.array([[2.2, 2.0], [2.0, 1.8]])


def morse(pos, z, a=1.4):
    """Energy and forces of one cluster under the reference potential."""
    diff = pos[:, None] - pos[None]
    r = np.linalg.norm(diff, axis=-1) + np.eye(len(pos))
    depth, r_eq = DEPTH[z][:, z], R_EQ[z][:, z]
    e = np.exp(-a * (r - r_eq))
    off = 1 - np.eye(len(pos))
    energy = 0.5 * (depth * (e ** 2 - 2 * e) * off).sum()
    de_dr = depth * (-2 * a * e ** 2 + 2 * a * e) * off
    return energy, -(de_dr[..., None] * diff / r[..., None]).sum(1)


def make_dataset(path, n_clusters=150, frames_per_cluster=16, n_max=16):
    rng = np.random.default_rng(0)
    frames = []
    for _ in range(n_clusters):
        n = rng.integers(8, n_max + 1)
        z = rng.integers(0, N_SPECIES, n)
        pos = rng.normal(0, 2.5, (n, 3))
        for _ in range(100):  # damped descent towards a local minimum
            force = morse(pos, z)[1]
            pos += 0.05 * force / np.maximum(np.linalg.norm(force, axis=1, keepdims=True), 1.0)
        for _ in range(frames_per_cluster):
            frame = pos + rng.normal(0, 0.12, pos.shape)
            energy, force = morse(frame, z)
            pad = n_max - n
            frames.append({"R": np.pad(frame, ((0, pad), (0, 0))), "N": n, "E": energy,
                           "F": np.pad(force, ((0, pad), (0, 0))), "Z": np.pad(z, (0, pad))})
    np.savez(path, **{key: np.array([f[key] for f in frames]) for key in frames[0]})


class ClusterDataset(Dataset):
    def __init__(self, path):
        data = np.load(path)
        self.graphs = []
        for i, n in enumerate(data["N"]):
            self.graphs.append({
                "pos": torch.tensor(data["R"][i, :n], dtype=torch.float32),
                "z": torch.tensor(data["Z"][i, :n]),
                "energy": torch.tensor(data["E"][i], dtype=torch.float32),
                "force": torch.tensor(data["F"][i, :n], dtype=torch.float32)})

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, i):
        return self.graphs[i]


def collate(graphs):
    """Concatenate clusters to one graph; edges are all pairs within the cutoff."""
    src, dst, batch, offset = [], [], [], 0
    for g, graph in enumerate(graphs):
        dist = torch.cdist(graph["pos"], graph["pos"])
        i, j = torch.nonzero((dist < CUTOFF) & (dist > 0), as_tuple=True)
        src.append(j + offset)
        dst.append(i + offset)
        batch.append(torch.full((len(graph["z"]),), g))
        offset += len(graph["z"])
    return {"pos": torch.cat([g["pos"] for g in graphs]),
            "z": torch.cat([g["z"] for g in graphs]),
            "force": torch.cat([g["force"] for g in graphs]),
            "energy": torch.stack([g["energy"] for g in graphs]),
            "src": torch.cat(src), "dst": torch.cat(dst), "batch": torch.cat(batch)}


class Interaction(nn.Module):
    def __init__(self, dim, n_rbf):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(n_rbf, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.lin_in = nn.Linear(dim, dim, bias=False)
        self.lin_out = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, h, rbf, envelope, src, dst):
        weight = self.filter(rbf) * envelope[:, None]
        message = self.lin_in(h)[src] * weight
        out = torch.zeros_like(h).index_add(0, dst, message)
        return h + self.lin_out(out)


class SchNet(nn.Module):
    def __init__(self, dim=64, n_rbf=40, n_layers=3):
        super().__init__()
        self.embedding = nn.Embedding(N_SPECIES, dim)
        self.register_buffer("centres", torch.linspace(0, CUTOFF, n_rbf))
        self.gamma = 0.5 / (CUTOFF / n_rbf) ** 2
        self.layers = nn.ModuleList(Interaction(dim, n_rbf) for _ in range(n_layers))
        self.readout = nn.Sequential(nn.Linear(dim, dim // 2), nn.SiLU(), nn.Linear(dim // 2, 1))

    def forward(self, data):
        pos, src, dst = data["pos"], data["src"], data["dst"]
        r = (pos[src] - pos[dst]).norm(dim=-1)
        rbf = torch.exp(-self.gamma * (r[:, None] - self.centres) ** 2)
        envelope = 0.5 * (torch.cos(torch.pi * r / CUTOFF) + 1)
        h = self.embedding(data["z"])
        for layer in self.layers:
            h = layer(h, rbf, envelope, src, dst)
        atomic = self.readout(h).squeeze(-1)
        return torch.zeros(len(data["energy"])).index_add(0, data["batch"], atomic)


def energy_and_forces(model, data, training):
    data["pos"].requires_grad_(True)
    energy = model(data)
    force = -torch.autograd.grad(energy.sum(), data["pos"], create_graph=training)[0]
    return energy, force


def main():
    torch.manual_seed(0)
    make_dataset("morse_clusters.npz")
    dataset = ClusterDataset("morse_clusters.npz")
    train, val = random_split(dataset, [len(dataset) - 200, 200])
    train_loader = DataLoader(train, batch_size=16, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(val, batch_size=16, collate_fn=collate)
    model = SchNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    ema = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.995))
    for epoch in range(200):
        model.train()
        for data in train_loader:
            energy, force = energy_and_forces(model, data, training=True)
            n_atoms = torch.bincount(data["batch"])
            loss_e = (((energy - data["energy"]) / n_atoms) ** 2).mean()
            loss = loss_e + 10 * ((force - data["force"]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            ema.update_parameters(model)
        mae_e, mae_f = [], []
        for data in val_loader:
            energy, force = energy_and_forces(ema.module, data, training=False)
            mae_e.append((energy - data["energy"]).abs().mean().item())
            mae_f.append((force - data["force"]).abs().mean().item())
        scheduler.step()
        print(f"epoch {epoch:3d}  loss {loss.item():.4f}  MAE E {np.mean(mae_e):.4f}  "
              f"F {np.mean(mae_f):.4f}", flush=True)


if __name__ == "__main__":
    main()
