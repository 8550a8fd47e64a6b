"""Day-ahead forecasting of the electricity load of many customers with an LSTM encoder-decoder.

The hourly load is read from a wide CSV (one column per customer, as in the UCI data set). Four days of
history goes in, the next 24 hours come out.
"""
import argparse
import os
import tempfile

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

DATA = os.path.join(tempfile.gettempdir(), "electricity_load_data")


def make_data(folder, n_customers=24, n_days=365, seed=5):
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(seed)
    time = pd.date_range("2013-01-01", periods=n_days * 24, freq="h")
    hour, day, week = time.hour.to_numpy(), time.day_of_year.to_numpy(), time.day_of_week.to_numpy()
    temperature = 12 - 9 * np.cos(2 * np.pi * day / 365) + np.cumsum(rng.normal(0, 0.15, len(time))) * 0.2
    columns = {}
    for k in range(n_customers):
        morning, evening = rng.uniform(6, 10), rng.uniform(17, 22)
        shape = np.exp(-0.5 * ((hour - morning) / 2) ** 2) + 1.4 * np.exp(-0.5 * ((hour - evening) / 2.5) ** 2)
        weekend = np.where(week >= 5, rng.uniform(0.5, 1.2), 1.0)
        noise = np.zeros(len(time))
        eps = rng.normal(0, 0.12, len(time))
        for t in range(1, len(time)):
            noise[t] = 0.85 * noise[t - 1] + eps[t]
        heating = rng.uniform(0, 0.05) * np.maximum(16 - temperature, 0)
        load = rng.lognormal(4, 0.8) * (0.4 + shape * weekend + heating) * np.exp(noise)
        columns["MT_%03d" % (k + 1)] = np.round(load, 3)
    tmp = os.path.join(folder, "load.tmp")
    pd.DataFrame(columns, index=time).to_csv(tmp, index_label="time")
    os.rename(tmp, os.path.join(folder, "load.csv"))


def calendar_features(time):
    hour, week, year = time.hour / 24, time.day_of_week / 7, time.day_of_year / 366
    feats = [f(2 * np.pi * v) for v in (hour, week, year) for f in (np.sin, np.cos)]
    return np.stack(feats, axis=1).astype(np.float32)


class LoadWindows(Dataset):
    """All windows of history + horizon hours of every customer."""

    def __init__(self, load, calendar, history, horizon):
        self.load = torch.from_numpy(load)
        self.calendar = torch.from_numpy(calendar)
        self.history, self.horizon = history, horizon
        self.starts = len(load) - history - horizon + 1

    def __len__(self):
        return self.starts * self.load.shape[1]

    def __getitem__(self, i):
        customer, start = divmod(i, self.starts)
        now, end = start + self.history, start + self.history + self.horizon
        return self.load[start:now, customer], self.load[now:end, customer], self.calendar[start:end]


class Seq2Seq(nn.Module):
    def __init__(self, n_calendar, hidden, horizon):
        super().__init__()
        self.encoder = nn.LSTM(1 + n_calendar, hidden, batch_first=True)
        self.decoder = nn.LSTMCell(1 + n_calendar, hidden)
        self.out = nn.Linear(hidden, 1)
        self.horizon = horizon

    def forward(self, past, calendar, target=None):
        n = past.shape[1]
        _, (h, c) = self.encoder(torch.cat([past.unsqueeze(2), calendar[:, :n]], dim=2))
        h, c = h[0], c[0]
        last = past[:, -1:]
        preds = []
        for t in range(self.horizon):
            h, c = self.decoder(torch.cat([last, calendar[:, n + t]], dim=1), (h, c))
            y = self.out(h)
            preds.append(y)
            last = y if target is None else target[:, t:t + 1]
        return torch.cat(preds, dim=1)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    abs_err = sq_err = abs_true = n = 0
    for past, future, calendar in loader:
        err = model(past, calendar) - future
        abs_err += err.abs().sum().item()
        sq_err += err.pow(2).sum().item()
        abs_true += future.abs().sum().item()
        n += err.numel()
    model.train()
    return abs_err / abs_true, (sq_err / n) ** 0.5


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--eval-every", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--history", type=int, default=96)
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    if not os.path.exists(os.path.join(DATA, "load.csv")):
        make_data(DATA)

    frame = pd.read_csv(os.path.join(DATA, "load.csv"), index_col="time", parse_dates=True)
    values = frame.to_numpy(dtype=np.float32)
    calendar = calendar_features(frame.index)
    cut = int(0.92 * len(values))
    mean, std = values[:cut].mean(0), values[:cut].std(0)
    values = (values - mean) / std
    train_set = LoadWindows(values[:cut], calendar[:cut], args.history, args.horizon)
    valid_set = LoadWindows(values[cut - args.history:], calendar[cut - args.history:], args.history, args.horizon)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid_set, batch_size=256)
    print("%d training windows, %d validation windows" % (len(train_set), len(valid_set)))

    model = Seq2Seq(calendar.shape[1], args.hidden, args.horizon)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    best, step, running = float("inf"), 0, 0.0
    print(" step    train    WAPE    RMSE")
    while step < args.steps:
        for past, future, cal in train_loader:
            loss = nn.functional.mse_loss(model(past, cal, target=future), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item()
            step += 1
            if step % args.eval_every == 0:
                wape, rmse = evaluate(model, valid_loader)
                mark = ""
                if rmse < best:
                    best, mark = rmse, " *"
                    torch.save(model.state_dict(), os.path.join(DATA, "best.pt"))
                print("%5d  %7.4f  %.4f  %.4f%s" % (step, running / args.eval_every, wape, rmse, mark), flush=True)
                running = 0.0
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
