# Insurance claims: predict the claim amount from a mixed table.
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ROWS = 20000
BATCH_SIZE = 160
HIDDEN_UNITS = 320

CATEGORIES = {
    "region": ["north", "east", "south", "west", "islands"],
    "vehicle": ["car", "van", "truck", "motorbike"],
    "fuel": ["petrol", "diesel", "electric", "hybrid"],
    "channel": ["agent", "phone", "web"],
    "cover": ["basic", "extended", "full"],
}


def make_table():
    rng = np.random.RandomState(123)
    columns = {}
    for k in range(36):
        columns["measure_%02d" % k] = rng.normal(size=ROWS).astype("float32")
    for k in range(10):
        columns["count_%d" % k] = rng.poisson(3, ROWS)
    for k in range(6):
        columns["flag_%d" % k] = rng.rand(ROWS) < 0.3
    for name, values in CATEGORIES.items():
        columns[name] = rng.choice(values, ROWS)
    table = pd.DataFrame(columns)
    table["claim"] = (table["measure_00"] * 2 - table["measure_01"] + table["count_0"]
                      + 3 * table["flag_0"] + (table["region"] == "islands") * 2
                      + rng.normal(size=ROWS) * 0.3).astype("float32")
    return table


class ClaimsDataset(Dataset):
    def __init__(self, table):
        self.table = table.reset_index(drop=True)
        self.numeric = [c for c in table.columns if c not in CATEGORIES and c != "claim"]
        self.codes = {name: {v: k for k, v in enumerate(values)} for name, values in CATEGORIES.items()}

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        row = self.table.iloc[index]
        numbers = torch.tensor([float(row[c]) for c in self.numeric])
        categories = torch.tensor([self.codes[c][row[c]] for c in self.codes])
        claim = torch.tensor(float(row["claim"]))
        return numbers, categories, claim


class ClaimsNet(nn.Module):
    def __init__(self, n_numeric):
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(len(v), 4) for v in CATEGORIES.values()])
        width = n_numeric + 4 * len(CATEGORIES)
        self.mlp = nn.Sequential(
            nn.Linear(width, HIDDEN_UNITS), nn.BatchNorm1d(HIDDEN_UNITS), nn.ReLU(),
            nn.Linear(HIDDEN_UNITS, HIDDEN_UNITS), nn.ReLU(), nn.Dropout(0.1),
            nn.Linear(HIDDEN_UNITS, 1))

    def forward(self, numbers, categories):
        parts = [numbers] + [e(categories[:, k]) for k, e in enumerate(self.embeddings)]
        return self.mlp(torch.cat(parts, dim=1)).squeeze(1)


if __name__ == "__main__":
    torch.manual_seed(123)
    table = make_table()
    train_set = ClaimsDataset(table)
    train_loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, num_workers=2,
                              persistent_workers=True, drop_last=True)
    net = ClaimsNet(len(train_set.numeric))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.001)
    mse = nn.MSELoss()
    for epoch in range(1, 1001):
        net.train()
        running_loss = 0.0
        for i, (numbers, categories, claim) in enumerate(train_loader, start=1):
            optimizer.zero_grad()
            prediction = net(numbers, categories)
            loss = mse(prediction, claim)
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
        print("Epoch %d, training MSE: %.4f" % (epoch, running_loss / i))
