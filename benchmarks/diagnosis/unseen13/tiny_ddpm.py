# Denoising Diffusion Probabilistic Models (Ho, Jain, Abbeel 2020), Algorithm 1, nothing fancy.
# data: 32x32 crops of the skimage textures.  noise schedule: linear, T = 1000.  eps-prediction.
import copy, math, os, random, tempfile, time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from skimage import data as skdata

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0); random.seed(0); np.random.seed(0)

T = 1000
CH = 32
BATCH = 12
LR = 2e-4
EMA = 0.999
STEPS = 2000

betas = torch.linspace(1e-4, 0.02, T)
alphas = 1.0 - betas
alpha_bar = torch.cumprod(alphas, 0)


# ---- data -----------------------------------------------------------------
def get_images():
    d = os.path.join(tempfile.gettempdir(), "tiny_ddpm")
    os.makedirs(d, exist_ok=True)
    f = os.path.join(d, "crops.npy")
    if not os.path.exists(f):
        crops = []
        for im in (skdata.brick(), skdata.grass(), skdata.gravel()):
            for _ in range(1500):
                i, j = random.randrange(512 - 64), random.randrange(512 - 64)
                crops.append(im[i:i + 64:2, j:j + 64:2])
        np.save(f, np.stack(crops))
    return np.load(f)


class Crops(torch.utils.data.Dataset):
    def __init__(self):
        self.images = get_images()

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        img = self.images[i].astype(np.float32) / 127.5 - 1.0
        if random.random() < 0.5:
            img = np.fliplr(img).copy()
        return torch.tensor(img)[None]


# ---- model ----------------------------------------------------------------
def timestep_embedding(t, dim):
    half = dim // 2
    freqs = torch.exp(-math.log(10000) * torch.arange(half, device=t.device) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([args.sin(), args.cos()], dim=1)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, temb):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.emb = nn.Linear(temb, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, temb):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.emb(F.silu(temb))[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + self.skip(x)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm = nn.GroupNorm(8, c)
        self.qkv, self.proj = nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, 3, c, h * w).unbind(1)
        att = torch.softmax(torch.einsum("bci,bcj->bij", q, k) / math.sqrt(c), dim=-1)
        out = torch.einsum("bij,bcj->bci", att, v).reshape(b, c, h, w)
        return x + self.proj(out)


class UNet(nn.Module):
    def __init__(self, ch=CH):
        super().__init__()
        e = 4 * ch
        self.temb = nn.Sequential(nn.Linear(ch, e), nn.SiLU(), nn.Linear(e, e))
        self.inp = nn.Conv2d(1, ch, 3, padding=1)
        self.d1 = ResBlock(ch, ch, e)
        self.down1 = nn.Conv2d(ch, ch, 3, stride=2, padding=1)
        self.d2 = ResBlock(ch, 2 * ch, e)
        self.down2 = nn.Conv2d(2 * ch, 2 * ch, 3, stride=2, padding=1)
        self.m1 = ResBlock(2 * ch, 2 * ch, e)
        self.att = Attention(2 * ch)
        self.m2 = ResBlock(2 * ch, 2 * ch, e)
        self.u2 = ResBlock(4 * ch, ch, e)
        self.u1 = ResBlock(2 * ch, ch, e)
        self.out = nn.Sequential(nn.GroupNorm(8, ch), nn.SiLU(), nn.Conv2d(ch, 1, 3, padding=1))
        self.ch = ch

    def forward(self, x, t):
        temb = self.temb(timestep_embedding(t, self.ch))
        h1 = self.d1(self.inp(x), temb)
        h2 = self.d2(self.down1(h1), temb)
        h = self.m2(self.att(self.m1(self.down2(h2), temb)), temb)
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        h = self.u2(torch.cat([h, h2], 1), temb)
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        h = self.u1(torch.cat([h, h1], 1), temb)
        return self.out(h)


def update_ema(ema, model):
    with torch.no_grad():
        for p_ema, p in zip(ema.parameters(), model.parameters()):
            p_ema.copy_(EMA * p_ema + (1 - EMA) * p)


# ---- training (Algorithm 1) -----------------------------------------------
model = UNet().to(device)
ema = copy.deepcopy(model)
optimizer = torch.optim.Adam(model.parameters(), lr=LR)
loader = torch.utils.data.DataLoader(Crops(), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=0)

history = []
step, start = 0, time.time()
while step < STEPS:
    for x0 in loader:
        x0 = x0.to(device)
        t = torch.randint(0, T, (x0.shape[0],))
        noise = torch.randn_like(x0)
        ab = torch.stack([alpha_bar[i] for i in t.tolist()]).view(-1, 1, 1, 1).to(device)
        xt = ab.sqrt() * x0 + (1 - ab).sqrt() * noise
        loss = ((model(xt, t.to(device)) - noise) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        update_ema(ema, model)
        history.append((step, loss.item(), norm.item()))
        print(f"step {step:5d}/{STEPS}  loss {history[-1][1]:.4f}  grad {history[-1][2]:.3f}  "
              f"mean(50) {np.mean([h[1] for h in history[-50:]]):.4f}  {time.time() - start:.1f}s", flush=True)
        step += 1
        if step >= STEPS:
            break
