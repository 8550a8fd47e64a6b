# Message passing network for aqueous solubility (logS).
# Atoms are nodes, bonds are edges. Follows the MPNN paper loosely: edge
# network + GRU update + sum readout.

import os
import pickle
import random
import tempfile
import time

import torch
from torch import nn
from torch.optim import Adam

torch.manual_seed(0)
random.seed(0)

CACHE = os.path.join(tempfile.gettempdir(), 'mol_logs')

ELEMENTS = ['C', 'N', 'O', 'F', 'S', 'Cl', 'Br']
VALENCE = {'C': 4, 'N': 3, 'O': 2, 'F': 1, 'S': 2, 'Cl': 1, 'Br': 1}
CONTRIB = {'C': -0.45, 'N': 0.55, 'O': 0.8, 'F': -0.2, 'S': -0.1, 'Cl': -0.6, 'Br': -0.8}
BOND_TYPES = [1, 2, 3]

ATOM_DIM = len(ELEMENTS) + 6
BOND_DIM = len(BOND_TYPES) + 1
HIDDEN = 48
STEPS = 3
BATCH_SIZE = 32
EPOCHS = 60


class Molecule:
    """Plain container: element symbols, bonds as (i, j, order), target."""

    def __init__(self, atoms, bonds, logs):
        self.atoms = atoms
        self.bonds = bonds
        self.logs = logs

    def featurize(self):
        degree = [0] * len(self.atoms)
        for i, j, _ in self.bonds:
            degree[i] += 1
            degree[j] += 1
        self.x = torch.zeros(len(self.atoms), ATOM_DIM)
        for a, el in enumerate(self.atoms):
            self.x[a, ELEMENTS.index(el)] = 1
            self.x[a, len(ELEMENTS) + min(degree[a], 5)] = 1
        src, dst, feats = [], [], []
        for i, j, order in self.bonds:
            f = [0.0] * BOND_DIM
            f[BOND_TYPES.index(order)] = 1.0
            f[-1] = 1.0 if self.atoms[i] != self.atoms[j] else 0.0
            src += [i, j]
            dst += [j, i]
            feats += [f, f]
        self.edge_index = torch.tensor([src, dst])
        self.edge_attr = torch.tensor(feats)
        self.y = torch.tensor([self.logs])
        return self


def random_molecule():
    n = random.randint(8, 28)
    atoms, bonds, free = ['C'], [], [4]
    while len(atoms) < n:
        open_sites = [k for k, f in enumerate(free) if f > 0]
        if not open_sites:
            break
        el = random.choices(ELEMENTS, weights=[60, 10, 14, 4, 4, 4, 2])[0]
        k = random.choice(open_sites)
        order = random.choice([1, 1, 1, 2, 3])
        order = min(order, free[k], VALENCE[el])
        atoms.append(el)
        free[k] -= order
        free.append(VALENCE[el] - order)
        bonds.append((k, len(atoms) - 1, order))
    # close a ring now and then
    sites = [k for k, f in enumerate(free) if f > 0]
    if len(sites) > 3 and random.random() < 0.7:
        i, j = random.sample(sites, 2)
        if not any({i, j} == {a, b} for a, b, _ in bonds):
            bonds.append((i, j, 1))
    logs = sum(CONTRIB[a] for a in atoms) / 3 + 0.15 * sum(o - 1 for _, _, o in bonds)
    return Molecule(atoms, bonds, logs + random.gauss(0, 0.3))


def load_molecules(n=3000):
    path = os.path.join(CACHE, 'molecules.pkl')
    if not os.path.exists(path):
        os.makedirs(CACHE, exist_ok=True)
        raw = [random_molecule() for _ in range(n)]
        with open(path, 'wb') as f:
            pickle.dump([(m.atoms, m.bonds, m.logs) for m in raw], f)
    with open(path, 'rb') as f:
        return [Molecule(*m).featurize() for m in pickle.load(f)]


class MPNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(ATOM_DIM, HIDDEN)
        self.msg = nn.Sequential(nn.Linear(2 * HIDDEN + BOND_DIM, 64), nn.ReLU(), nn.Linear(64, HIDDEN))
        self.update = nn.GRUCell(HIDDEN, HIDDEN)
        self.gate = nn.Linear(HIDDEN + ATOM_DIM, HIDDEN)
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.readout = nn.Sequential(nn.Linear(HIDDEN, 64), nn.ReLU(), nn.Linear(64, 1))

    def embed(self, x, edge_index, edge_attr):
        src, dst = edge_index
        h = torch.relu(self.inp(x))
        for _ in range(STEPS):
            m = self.msg(torch.cat([h[src], h[dst], edge_attr], dim=1))
            agg = torch.zeros_like(h).index_add(0, dst, m)
            h = self.update(agg, h)
        return torch.sigmoid(self.gate(torch.cat([h, x], dim=1))) * self.out(h)

    def forward(self, mol):
        atoms = self.embed(mol.x, mol.edge_index, mol.edge_attr)
        return self.readout(atoms.sum(dim=0))


def predict(model, batch):
    return torch.cat([model(mol) for mol in batch])


def main():
    mols = load_molecules()
    random.shuffle(mols)
    split = int(0.95 * len(mols))
    train, test = mols[:split], mols[split:]
    print(len(train), 'train /', len(test), 'test molecules')

    model = MPNN()
    opt = Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.MSELoss()

    for epoch in range(EPOCHS):
        t0 = time.time()
        random.shuffle(train)
        running = 0.
        for b in range(0, len(train), BATCH_SIZE):
            batch = train[b:b + BATCH_SIZE]
            target = torch.cat([mol.y for mol in batch])
            opt.zero_grad()
            loss = loss_fn(predict(model, batch), target)
            loss.backward()
            opt.step()
            running += loss.item() * len(batch)

        with torch.no_grad():
            err = predict(model, test) - torch.cat([mol.y for mol in test])
        print('epoch %02d  train mse %.4f  test rmse %.4f  (%.1fs)'
              % (epoch, running / len(train), err.pow(2).mean().sqrt(), time.time() - t0), flush=True)

    torch.save(model.state_dict(), os.path.join(CACHE, 'mpnn.pt'))


if __name__ == '__main__':
    main()
