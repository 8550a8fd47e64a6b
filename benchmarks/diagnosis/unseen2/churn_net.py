#!/usr/bin/env python
# coding: utf-8
# In[1]:
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

np.random.seed(5)
torch.manual_seed(5)

# In[2]: customers (one row each) and their transactions (what we predict on)
N_CUST, N_TX = 100_000, 400_000
FEATURES = ["age", "tenure", "balance", "n_products", "salary", "score", "visits", "complaints"]

cust_ids = np.random.permutation(np.arange(1_000_000, 1_000_000 + 3 * N_CUST))[:N_CUST]
customers = pd.DataFrame(np.random.randn(N_CUST, len(FEATURES)).astype(np.float32), columns=FEATURES)
customers.insert(0, "customer_id", cust_ids)

row = np.random.randint(0, N_CUST, N_TX)
tx_customer = cust_ids[row]
tx_feats = np.random.randn(N_TX, 24).astype(np.float32)
logit = customers[FEATURES].to_numpy()[row] @ np.linspace(-1, 1, 8) + tx_feats[:, :4].sum(1) * 0.5
label = (logit + np.random.randn(N_TX) > 0).astype(np.float32)
del logit, row


# In[3]:
class Transactions(Dataset):
    """features of the transaction, joined with those of the customer"""

    def __init__(self, customers, tx_customer, tx_feats, label):
        self.customers = customers
        self.tx_customer = tx_customer
        self.tx_feats = tx_feats
        self.label = label

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        c = self.customers[self.customers["customer_id"] == self.tx_customer[i]]
        who = c[FEATURES].to_numpy()[0]
        return np.concatenate([who, self.tx_feats[i]]), self.label[i]


def collate(items):
    x, y = zip(*items)
    return torch.from_numpy(np.stack(x)), torch.from_numpy(np.array(y))


# In[4]:
class ResBlock(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.lin = nn.Linear(d, d)

    def forward(self, x):
        return x + torch.relu(self.lin(self.norm(x)))


width = 768
model = nn.Sequential(nn.Linear(len(FEATURES) + tx_feats.shape[1], width), ResBlock(width), ResBlock(width),
                      nn.Linear(width, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
criterion = nn.BCEWithLogitsLoss()

train_ds = Transactions(customers, tx_customer, tx_feats, label)
train_dl = DataLoader(train_ds, batch_size=128, shuffle=True, collate_fn=collate, drop_last=True)

# In[5]:
n = 0
for epoch in range(8):
    for xb, yb in train_dl:
        pred = model(xb).squeeze(1)
        loss = criterion(pred, yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        n += 1
        if n % 50 == 0:
            print(f"epoch {epoch} batch {n} bce {loss.item():.4f}", flush=True)
