# Heartbeats: normal, early beat or dropped beat, from a synthetic one-channel trace read sample by sample.
import numpy as np
import torch
import torch.nn as nn

LENGTH = 210
HIDDEN = 64
BATCH = 32


def beat(t, centre, amp):
    qrs = np.exp(-0.5 * ((t - centre) / 1.6) ** 2) - 0.25 * np.exp(-0.5 * ((t - centre - 4) / 2.0) ** 2)
    wave = 0.3 * np.exp(-0.5 * ((t - centre - 18) / 5.0) ** 2)
    return amp * (qrs + wave)


def make_traces(n, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(LENGTH)[None, :]
    label = rng.integers(0, 3, n)
    trace = 0.05 * rng.standard_normal((n, LENGTH))
    period = rng.uniform(38, 46, n)
    first = rng.uniform(5, 30, n)
    odd = rng.integers(1, 4, n)
    for k in range(7):
        centre = first + k * period
        amp = np.ones(n)
        centre = np.where((label == 1) & (k == odd), centre - 0.35 * period, centre)
        amp = np.where((label == 2) & (k == odd), 0.0, amp)
        trace += beat(t, centre[:, None], amp[:, None])
    return torch.tensor(trace[:, :, None], dtype=torch.float32), torch.tensor(label)


class LSTM(nn.Module):
    def __init__(self, n_in, n_hidden):
        super().__init__()
        self.n_hidden = n_hidden
        self.x2h = nn.Linear(n_in, 4 * n_hidden)
        self.h2h = nn.Linear(n_hidden, 4 * n_hidden)

    def forward(self, x):
        h = torch.zeros(x.shape[0], self.n_hidden)
        c = torch.zeros(x.shape[0], self.n_hidden)
        outputs = []
        for t in range(x.shape[1]):
            i, f, g, o = (self.x2h(x[:, t]) + self.h2h(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, 1), (h, c)


class BeatNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = LSTM(1, HIDDEN)
        self.head = nn.Sequential(nn.Linear(2 * HIDDEN, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x):
        states, _ = self.rnn(x)
        return self.head(torch.cat([states.mean(1), states.amax(1)], 1))


def evaluate(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(17)
    x, y = make_traces(4000, 0)
    xv, yv = make_traces(200, 1)
    model = BeatNet()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, fused=True)
    for epoch in range(500):
        running = 0.0
        for n, idx in enumerate(torch.randperm(len(x)).split(BATCH), 1):
            optimizer.zero_grad()
            loss = criterion(model(x[idx]), y[idx])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            running += loss.item()
            if n % 25 == 0:
                print("epoch %d batch %3d: loss %.3f" % (epoch, n, running / n), flush=True)
        print("epoch %d: validation accuracy %.3f" % (epoch, evaluate(model, xv, yv)), flush=True)


if __name__ == "__main__":
    main()
