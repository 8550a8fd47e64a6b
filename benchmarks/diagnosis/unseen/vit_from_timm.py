"""Small ViT on crops of microscope-like images: is there a ring in the picture, a blob, a stripe, or nothing?"""
import argparse
import time

import timm
import torch
from torch.utils.data import DataLoader, Dataset

IMAGE = 64
EMBED = 144
N_IMAGES = 4000


def parse():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=200)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--wd", type=float, default=0.05)
    return p.parse_args()


def draw_images(n, seed):
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, IMAGE)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    out = torch.empty(n, IMAGE, IMAGE, dtype=torch.uint8)
    label = torch.randint(4, (n,), generator=g)
    for i, k in enumerate(label.tolist()):
        cy, cx, r = (torch.rand(3, generator=g) - 0.5).tolist()
        dist = ((yy - cy) ** 2 + (xx - cx) ** 2).sqrt()
        if k == 0:
            shape = torch.exp(-((dist - 0.3 - 0.2 * r) ** 2) * 200)
        elif k == 1:
            shape = torch.exp(-(dist**2) * 15)
        elif k == 2:
            shape = torch.exp(-((xx * (1 + r) - yy - cx) ** 2) * 60)
        else:
            shape = torch.zeros_like(dist)
        noisy = 90 * shape + 80 + 30 * torch.randn(IMAGE, IMAGE, generator=g)
        out[i] = noisy.clamp(0, 255).to(torch.uint8)
    return out, label


class Microscopy(Dataset):
    def __init__(self, n, seed):
        self.images, self.labels = draw_images(n, seed)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        image = self.images[i].float().div(255).sub(0.4).unsqueeze(0)
        if torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, self.labels[i]


def main():
    opt = parse()
    torch.manual_seed(0)
    loader = DataLoader(Microscopy(N_IMAGES, 1), batch_size=opt.batch_size, shuffle=True, num_workers=opt.workers,
                        persistent_workers=True, drop_last=True)
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, img_size=IMAGE, patch_size=8, in_chans=1, num_classes=4,
                              embed_dim=EMBED, depth=4, num_heads=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=opt.lr, weight_decay=opt.wd)
    loss_fn = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    model.train()
    for epoch in range(opt.epochs):
        began = time.perf_counter()
        for i, (image, label) in enumerate(loader):
            loss = loss_fn(model(image), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 25 == 0:
                print(f"epoch {epoch} [{i}/{len(loader)}] loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} took {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
