"""River level forecasting: a GRU over long records of rain, snow melt and reservoir releases."""
import torch
import torch.nn as nn

HIDDEN = 96
BATCH = 24
LENGTH = 240
GAUGES = 6
LR = 2e-3


def catchments(n, seed=12):
    g = torch.Generator().manual_seed(seed)
    rain = (torch.rand(n, LENGTH, GAUGES, generator=g) - 0.7).clamp(min=0) * 5
    decay = 0.85 + 0.1 * torch.rand(n, 1, generator=g)
    weight = torch.rand(GAUGES, generator=g)
    inflow = rain @ weight
    level = torch.zeros(n, LENGTH)
    state = torch.zeros(n, 1)
    for t in range(LENGTH):
        state = decay * state + 0.2 * inflow[:, t : t + 1]
        level[:, t] = torch.tanh(state[:, 0])
    return rain, level


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(GAUGES, HIDDEN, batch_first=True)
        self.level = nn.Linear(HIDDEN, 1)

    def forward(self, rain):
        states, _ = self.gru(rain)
        return self.level(states).squeeze(-1)


def nash_sutcliffe(sim, obs):
    return 1 - (sim - obs).square().sum() / (obs - obs.mean()).square().sum()


def main():
    torch.manual_seed(12)
    rain, level = catchments(2400)
    forecaster = Forecaster()
    optimizer = torch.optim.Adam(forecaster.parameters(), lr=LR)
    step = 0
    for epoch in range(2000):
        for rows in torch.randperm(len(rain)).split(BATCH):
            sim = forecaster(rain[rows])
            loss = nn.functional.mse_loss(sim, level[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(forecaster.parameters(), 1.0)
            optimizer.step()
            step += 1
            if step % 50 == 0:
                print(f"epoch {epoch:4d} step {step:6d} mse {loss.item():.5f} nse {nash_sutcliffe(sim.detach(), level[rows]).item():.3f}",
                      flush=True)


if __name__ == "__main__":
    main()
