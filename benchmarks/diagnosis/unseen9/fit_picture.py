"""
Fit one big picture with a coordinate network (Fourier features). Single file, simple to hack.
$ python fit_picture.py
"""
import gc
import math
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from skimage import data
from skimage.transform import resize

# -----------------------------------------------------------------------------
# I/O
out_dir = os.path.join(tempfile.gettempdir(), 'fit_picture')
eval_interval = 400
log_interval = 10
always_save_checkpoint = True
# data
batch_size = 2048
side = 1024
# model
n_layer = 4
n_hidden = 1024
sigma = 6.0
# adamw optimizer
learning_rate = 2e-4
max_iters = 20000
weight_decay = 1e-2
beta1, beta2 = 0.9, 0.99
grad_clip = 1.0
# learning rate decay settings
warmup_iters = 50
min_lr = 1e-5
# system
seed = 1337
dtype = 'bfloat16'
compile = False
# -----------------------------------------------------------------------------
config = {k: v for k, v in globals().items() if not k.startswith('_') and isinstance(v, (int, float, bool, str))}


def prepare():
    path = os.path.join(out_dir, 'picture.bin')
    if not os.path.exists(path):
        os.makedirs(out_dir, exist_ok=True)
        img = resize(data.astronaut(), (side, side), anti_aliasing=False)
        (img * 255).astype(np.uint8).tofile(path)
    return path


def get_batch(path, rng):
    # recreate the memmap every batch to avoid a memory leak, see
    # https://stackoverflow.com/questions/45132940
    arr = np.memmap(path, dtype=np.uint8, mode='r', shape=(side, side, 3))
    iy = rng.integers(0, side, batch_size)
    ix = rng.integers(0, side, batch_size)
    x = torch.from_numpy(np.stack([iy, ix], 1).astype(np.float32) / side * 2 - 1)
    y = torch.from_numpy(arr[iy, ix].astype(np.float32) / 255)
    return x, y


class Fourier(nn.Module):
    def __init__(self, n_freq):
        super().__init__()
        self.register_buffer('B', torch.randn(2, n_freq) * sigma)

    def forward(self, x):
        p = 2 * math.pi * x @ self.B
        return torch.cat([p.sin(), p.cos()], dim=-1)


class CoordMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = Fourier(128)
        width = [256] + [n_hidden] * n_layer
        self.layers = nn.ModuleList(nn.Linear(i, o) for i, o in zip(width[:-1], width[1:]))
        self.head = nn.Linear(n_hidden, 3)
        print("number of parameters: %.2fM" % (sum(p.numel() for p in self.parameters()) / 1e6,))

    def forward(self, x, targets=None):
        with torch.autocast('cpu', enabled=False):
            x = self.enc(x)
        for layer in self.layers:
            x = torch.relu(layer(x))
        rgb = torch.sigmoid(self.head(x).float())
        if targets is None:
            return rgb, None
        return rgb, ((rgb - targets) ** 2).mean()

    def configure_optimizers(self):
        decay = [p for p in self.parameters() if p.dim() >= 2]
        nodecay = [p for p in self.parameters() if p.dim() < 2]
        groups = [{'params': decay, 'weight_decay': weight_decay}, {'params': nodecay, 'weight_decay': 0.0}]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=(beta1, beta2))


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = (it - warmup_iters) / (max_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


@torch.no_grad()
def estimate_psnr(model, path):
    model.eval()
    rng = np.random.default_rng(0)
    mse = np.mean([model(*get_batch(path, rng))[1].item() for _ in range(4)])
    model.train()
    return -10 * math.log10(mse)


def main():
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    path = prepare()
    model = CoordMLP()
    optimizer = model.configure_optimizers()
    ctx = torch.autocast('cpu', dtype=getattr(torch, dtype), enabled=dtype != 'float32')
    csv = open(os.path.join(out_dir, 'log.csv'), 'w')
    history = []
    iter_num, t_start = 0, time.time()
    X, Y = get_batch(path, rng)
    while iter_num < max_iters:
        lr = get_lr(iter_num)
        for param_group in optimizer.param_groups:
            param_group['lr'] = lr
        if iter_num > 0 and iter_num % eval_interval == 0:
            print(f"step {iter_num}: psnr {estimate_psnr(model, path):.2f}", flush=True)
            if always_save_checkpoint:
                torch.save({'model': model.state_dict(), 'optimizer': optimizer.state_dict(),
                            'iter_num': iter_num, 'config': config}, os.path.join(out_dir, 'ckpt.pt'))
            gc.collect()
        with ctx:
            _, loss = model(X, Y)
        X, Y = get_batch(path, rng)
        loss.backward()
        if grad_clip != 0.0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        history.append(loss.item())
        csv.write(f"{iter_num},{history[-1]},{lr}\n")
        csv.flush()
        iter_num += 1
        if iter_num % log_interval == 0:
            print(f"iter {iter_num}: loss {np.mean(history[-log_interval:]):.4f}, "
                  f"{iter_num * batch_size / (time.time() - t_start):.0f} px/s", flush=True)


if __name__ == '__main__':
    main()
