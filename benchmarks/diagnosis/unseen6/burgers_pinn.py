"""Physics-informed network for the viscous Burgers equation, with Lightning.

u_t + u u_x - nu u_xx = 0 on x in [-1, 1], t in [0, 1]
u(x, 0) = -sin(pi x),  u(-1, t) = u(1, t) = 0
"""
import math
import time

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

NU = 0.01 / math.pi


class Collocation(IterableDataset):
    """Endless random collocation, initial and boundary points, a batch at a time."""

    def __init__(self, interior, edge, batches):
        self.interior, self.edge, self.batches = interior, edge, batches

    def __iter__(self):
        for _ in range(self.batches):
            xt = torch.rand(self.interior, 2)
            xt[:, 0] = 2 * xt[:, 0] - 1
            x0 = 2 * torch.rand(self.edge, 1) - 1
            tb = torch.rand(self.edge, 1)
            side = torch.randint(0, 2, (self.edge, 1)).float() * 2 - 1
            yield xt, torch.cat([x0, torch.zeros_like(x0)], 1), torch.cat([side, tb], 1)


class FourierFeatures(nn.Module):
    def __init__(self, n, scale):
        super().__init__()
        self.register_buffer("b", torch.randn(2, n) * scale)

    def forward(self, xt):
        z = xt @ self.b
        return torch.cat([xt, torch.sin(z), torch.cos(z)], -1)


class AdaptiveTanh(nn.Module):
    """tanh with a trainable slope per layer (Jagtap et al.)."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return torch.tanh(self.slope * x)


class GatedLayer(nn.Module):
    """Mixes two encodings U and V, as in the 'modified MLP' of Wang et al."""

    def __init__(self, width):
        super().__init__()
        self.lin = nn.Linear(width, width)
        self.act = AdaptiveTanh()

    def forward(self, h, u, v):
        z = self.act(self.lin(h))
        return (1 - z) * u + z * v


class BurgersPINN(pl.LightningModule):
    def __init__(self, width=40, depth=6, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.feat = FourierFeatures(10, 1.5)
        n = 2 + 20
        self.enc_u = nn.Sequential(nn.Linear(n, width), nn.Tanh())
        self.enc_v = nn.Sequential(nn.Linear(n, width), nn.Tanh())
        self.first = nn.Linear(n, width)
        self.layers = nn.ModuleList(GatedLayer(width) for _ in range(depth))
        self.last = nn.Linear(width, 1)

    def forward(self, xt):
        f = self.feat(xt)
        u, v = self.enc_u(f), self.enc_v(f)
        h = torch.tanh(self.first(f))
        for layer in self.layers:
            h = layer(h, u, v)
        return self.last(h)

    def residual(self, xt):
        xt = xt.requires_grad_(True)
        u = self(xt)
        g = torch.autograd.grad(u.sum(), xt, create_graph=True)[0]
        u_x, u_t = g[:, :1], g[:, 1:]
        u_xx = torch.autograd.grad(u_x.sum(), xt, create_graph=True)[0][:, :1]
        return u_t + u * u_x - NU * u_xx

    def training_step(self, batch, _):
        inside, start, edge = batch
        pde = self.residual(inside).pow(2).mean()
        ic = (self(start) + torch.sin(math.pi * start[:, :1])).pow(2).mean()
        bc = self(edge).pow(2).mean()
        loss = pde + 10 * ic + 10 * bc
        self.log_dict({"pde": pde, "ic": ic, "bc": bc})
        return loss

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "epoch"}}


class ShowProgress(pl.Callback):
    def __init__(self, every):
        self.every = every
        self.t0 = None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if self.t0 is None:
            self.t0, self.first = time.time(), trainer.global_step
        if trainer.global_step % self.every == 0:
            took = time.time() - self.t0
            rate = (trainer.global_step - self.first) / max(took, 1e-9)
            m = trainer.callback_metrics
            print(f"step {trainer.global_step} loss {outputs['loss'].item():.5f} "
                  f"pde {m['pde']:.5f} ic {m['ic']:.5f} {rate:.1f} it/s", flush=True)


if __name__ == "__main__":
    pl.seed_everything(5)
    loader = DataLoader(Collocation(interior=1600, edge=150, batches=500), batch_size=None)
    trainer = pl.Trainer(
        max_epochs=40,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
        detect_anomaly=True,
        callbacks=[ShowProgress(25)],
    )
    trainer.fit(BurgersPINN(), loader)
