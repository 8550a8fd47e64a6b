"""Implicit Q-learning on logged walking-robot episodes, with a small trainer and callbacks."""
import gc
import os
import resource
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

FOLDER = os.path.join(tempfile.gettempdir(), "walker_iql")
OBS, ACT = 17, 6
EPISODES, HORIZON = 200, 250


def simulate_logs(path):
    """Damped random linear dynamics driven by a noisy feedback controller."""
    rng = np.random.default_rng(5)
    A = np.eye(OBS) * 0.92 + rng.normal(0, 0.02, (OBS, OBS))
    B = rng.normal(0, 0.25, (ACT, OBS))
    K = rng.normal(0, 0.3, (OBS, ACT))
    goal = rng.normal(0, 0.5, OBS)
    skill = rng.uniform(0, 1, (EPISODES, 1))
    s = rng.normal(0, 1, (EPISODES, OBS))
    obs, act, rew = [], [], []
    for _ in range(HORIZON):
        a = np.tanh(skill * ((goal - s) @ K) + (1.1 - skill) * rng.normal(0, 0.6, (EPISODES, ACT)))
        obs.append(s)
        act.append(a)
        s = s @ A + a @ B + rng.normal(0, 0.03, s.shape)
        rew.append(np.exp(-0.1 * ((s - goal) ** 2).sum(1)) - 0.02 * (a ** 2).sum(1))
    obs.append(s)
    np.savez(path, obs=np.stack(obs, 1).astype(np.float32), act=np.stack(act, 1).astype(np.float32),
             rew=np.stack(rew, 1).astype(np.float32))


class Frame:
    """One control tick as it comes from the robot's log."""

    def __init__(self, episode, tick, joints, torques, reward, contacts):
        self.episode = episode
        self.tick = tick
        self.joints = joints
        self.torques = torques
        self.reward = reward
        self.contacts = contacts
        self.following = None


def load_frames(path):
    z = np.load(path)
    frames = []
    for e in range(EPISODES):
        obs, act, rew = z["obs"][e], z["act"][e], z["rew"][e].tolist()
        previous = None
        for t in range(HORIZON):
            contacts = [{"foot": k, "load": abs(float(obs[t, k]))} for k in range(2)]
            frame = Frame(e, t, obs[t], act[t], rew[t], contacts)
            if previous is not None:
                previous.following = frame
            frames.append(frame)
            previous = frame
    return frames


class FrameDataset(Dataset):
    def __init__(self, frames):
        self.frames = [f for f in frames if f.following is not None]

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        return self.frames[i]


def collate(frames):
    return {
        "s": torch.from_numpy(np.stack([f.joints for f in frames])),
        "a": torch.from_numpy(np.stack([f.torques for f in frames])),
        "r": torch.tensor([f.reward for f in frames]),
        "s2": torch.from_numpy(np.stack([f.following.joints for f in frames])),
        "not_last": torch.tensor([float(f.following.following is not None) for f in frames]),
    }


def mlp(n_in, n_out, width=512):
    return nn.Sequential(nn.Linear(n_in, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, n_out))


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.q1, self.q2, self.v = mlp(OBS + ACT, 1), mlp(OBS + ACT, 1), mlp(OBS, 1)
        self.pi = mlp(OBS, ACT)
        self.t1, self.t2 = mlp(OBS + ACT, 1), mlp(OBS + ACT, 1)
        self.t1.load_state_dict(self.q1.state_dict())
        self.t2.load_state_dict(self.q2.state_dict())
        for p in list(self.t1.parameters()) + list(self.t2.parameters()):
            p.requires_grad_(False)

    def losses(self, b, gamma=0.97, tau=0.7, beta=3.0):
        sa = torch.cat([b["s"], b["a"]], 1)
        with torch.no_grad():
            q_t = torch.minimum(self.t1(sa), self.t2(sa)).squeeze(1)
            backup = b["r"] + gamma * b["not_last"] * self.v(b["s2"]).squeeze(1)
        v = self.v(b["s"]).squeeze(1)
        adv = q_t - v
        v_loss = (torch.where(adv > 0, tau, 1 - tau) * adv.pow(2)).mean()
        q_loss = sum((q(sa).squeeze(1) - backup).pow(2).mean() for q in (self.q1, self.q2))
        w = torch.exp(beta * adv.detach()).clamp(max=20)
        pi_loss = (w * (torch.tanh(self.pi(b["s"])) - b["a"]).pow(2).sum(1)).mean()
        return {"v": v_loss, "q": q_loss, "pi": pi_loss}

    @torch.no_grad()
    def sync(self, rate=0.005):
        pairs = [(self.t1, self.q1), (self.t2, self.q2)]
        for target, source in pairs:
            torch._foreach_lerp_(list(target.parameters()), list(source.parameters()), rate)


class Callback:
    def on_step(self, trainer): ...
    def on_epoch(self, trainer): ...


class Printer(Callback):
    def on_step(self, trainer):
        if trainer.step % 50 == 0:
            rate = trainer.step / (time.monotonic() - trainer.started)
            print(f"step {trainer.step:6d}", " ".join(f"{k}={v:.4f}" for k, v in trainer.last.items()),
                  f"({rate:.1f} it/s)", flush=True)


class MemoryKeeper(Callback):
    """The lab machines kill jobs that grow, so keep an eye on the resident size."""

    def __init__(self, limit_mb):
        self.limit_mb = limit_mb
        self.peak = 0

    def on_step(self, trainer):
        self.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if self.peak > self.limit_mb:
            gc.collect()

    def on_epoch(self, trainer):
        print(f"  peak memory {self.peak:.0f} MB")


class Checkpoint(Callback):
    def on_epoch(self, trainer):
        if trainer.epoch % 5 == 0:
            torch.save(trainer.agent.state_dict(), os.path.join(FOLDER, "agent.pt"))


class Trainer:
    def __init__(self, agent, loader, callbacks, max_epochs):
        self.agent, self.loader, self.callbacks, self.max_epochs = agent, loader, callbacks, max_epochs
        self.opt = torch.optim.Adam([p for p in agent.parameters() if p.requires_grad], lr=3e-4, fused=True)
        self.step = self.epoch = 0
        self.last = {}

    def fit(self):
        self.started = time.monotonic()
        for self.epoch in range(self.max_epochs):
            for batch in self.loader:
                losses = self.agent.losses(batch)
                self.opt.zero_grad()
                sum(losses.values()).backward()
                self.opt.step()
                self.agent.sync()
                self.last = {k: v.item() for k, v in losses.items()}
                self.step += 1
                for c in self.callbacks:
                    c.on_step(self)
            for c in self.callbacks:
                c.on_epoch(self)


if __name__ == "__main__":
    torch.manual_seed(0)
    os.makedirs(FOLDER, exist_ok=True)
    log_file = os.path.join(FOLDER, "episodes.npz")
    if not os.path.exists(log_file):
        simulate_logs(log_file)
    data = FrameDataset(load_frames(log_file))
    print(f"{len(data)} transitions")
    loader = DataLoader(data, batch_size=512, shuffle=True, drop_last=True, collate_fn=collate)
    Trainer(Agent(), loader, [Printer(), MemoryKeeper(limit_mb=384), Checkpoint()], max_epochs=200).fit()
