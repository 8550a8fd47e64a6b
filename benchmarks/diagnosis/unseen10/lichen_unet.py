"""U-Net for lichen cover on gravestones (quadrat photographs, 3 classes)."""
import argparse
import logging
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy import ndimage
from skimage import data as skdata
from torch.utils.data import DataLoader, TensorDataset, random_split

dir_root = Path(tempfile.gettempdir()) / 'lichen_unet'
dir_checkpoint = dir_root / 'checkpoints'


def make_quadrats(path, n=2800, size=64, seed=0):
    rng = np.random.default_rng(seed)
    stone = skdata.brick().astype(np.float32)
    rough = skdata.gravel().astype(np.float32)
    cover = ndimage.gaussian_filter(rng.standard_normal((2, 1500, 1500), np.float32), (0, 5, 5))
    imgs = np.zeros((n, 3, size, size), np.uint8)
    masks = np.zeros((n, size, size), np.uint8)
    for k in range(n):
        i, j = rng.integers(0, 512 - size, 2)
        base = np.stack([stone[i:i + size, j:j + size]] * 3) * rng.uniform(0.7, 1.1)
        a, b = rng.integers(0, 1500 - size, 2)
        field = cover[:, a:a + size, b:b + size]
        m = np.zeros((size, size), np.uint8)
        m[field[0] > 0.06] = 1
        m[field[1] > 0.08] = 2
        tex = rough[j:j + size, i:i + size] / 255
        base[:, m == 1] = np.array([150, 160, 90])[:, None] * (0.5 + tex[m == 1])
        base[:, m == 2] = np.array([190, 120, 40])[:, None] * (0.5 + tex[m == 2])
        imgs[k] = np.clip(base + 12 * rng.standard_normal(base.shape, np.float32), 0, 255)
        masks[k] = m
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, imgs=imgs, masks=masks)


class DoubleConv(nn.Module):
    """(convolution => [BN] => ReLU) * 2"""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True))

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        return self.conv(torch.cat([x2, self.up(x1)], dim=1))


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, w=8):
        super().__init__()
        self.n_classes = n_classes
        self.inc = DoubleConv(n_channels, w)
        self.down1 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(w, 2 * w))
        self.down2 = nn.Sequential(nn.MaxPool2d(2), DoubleConv(2 * w, 4 * w))
        self.up1 = Up(4 * w, 2 * w)
        self.up2 = Up(2 * w, w)
        self.outc = nn.Conv2d(w, n_classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        return self.outc(self.up2(self.up1(x3, x2), x1))


def dice_loss(probs, target, eps=1e-6):
    inter = 2 * (probs * target).sum(dim=(-1, -2))
    sets = probs.sum(dim=(-1, -2)) + target.sum(dim=(-1, -2))
    return 1 - ((inter + eps) / (sets + eps)).mean()


@torch.inference_mode()
def evaluate(net, loader):
    net.eval()
    hit = union = 0
    for image, mask in loader:
        pred = net(image).argmax(1)
        for c in (1, 2):
            hit += ((pred == c) & (mask == c)).sum().item()
            union += ((pred == c) | (mask == c)).sum().item()
    net.train()
    return hit / max(union, 1)


def load_quadrats(path):
    if not path.exists():
        logging.info('Making quadrats ...')
        make_quadrats(path)
    z = np.load(path)
    images = torch.from_numpy(z['imgs']).float().div_(255)
    return images, torch.from_numpy(z['masks']).long()


def save_checkpoint(net, optimizer, scheduler, epoch, step, samples):
    state = {
        'net': net.state_dict(),
        'optimizer': optimizer.state_dict(),
        'scheduler': scheduler.state_dict(),
        'epoch': epoch,
        'global_step': step,
        'samples': samples,      # shown by the labelling GUI beside the predictions
    }
    tmp = dir_checkpoint / 'last.pth.tmp'
    torch.save(state, tmp)
    os.replace(tmp, dir_checkpoint / 'last.pth')


def train_model(net, images, masks, args):
    dataset = TensorDataset(images, masks)
    n_val = int(len(dataset) * args.val)
    train_set, val_set = random_split(dataset, [len(dataset) - n_val, n_val],
                                      generator=torch.Generator().manual_seed(0))
    train_loader = DataLoader(train_set, shuffle=True, batch_size=args.batch_size, num_workers=0, drop_last=True)
    val_loader = DataLoader(val_set, shuffle=False, batch_size=args.batch_size, num_workers=0)
    samples = images[:args.samples]

    optimizer = torch.optim.RMSprop(net.parameters(), lr=args.lr, weight_decay=1e-8, momentum=0.9, foreach=True)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, 'max', patience=5)
    criterion = nn.CrossEntropyLoss()
    global_step = 0
    dir_checkpoint.mkdir(parents=True, exist_ok=True)

    for epoch in range(1, args.epochs + 1):
        net.train()
        epoch_loss = 0
        for image, true_mask in train_loader:
            masks_pred = net(image)
            loss = criterion(masks_pred, true_mask)
            loss += dice_loss(F.softmax(masks_pred, dim=1),
                              F.one_hot(true_mask, net.n_classes).permute(0, 3, 1, 2).float())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            global_step += 1
            epoch_loss += loss.item()
            if global_step % args.save_every == 0:
                save_checkpoint(net, optimizer, scheduler, epoch, global_step, samples)
            if global_step % 20 == 0:
                logging.info(f'Step: {global_step}, Loss (batch): {loss.item():.4f}')
        iou = evaluate(net, val_loader)
        scheduler.step(iou)
        logging.info(f'Epoch {epoch}: mean loss {epoch_loss / len(train_loader):.4f}, IoU {iou:.3f}')


def get_args():
    parser = argparse.ArgumentParser(description='Train the UNet on quadrats and masks')
    parser.add_argument('--epochs', '-e', type=int, default=300)
    parser.add_argument('--batch-size', '-b', type=int, default=10)
    parser.add_argument('--lr', '-l', type=float, default=1e-4)
    parser.add_argument('--val', type=float, default=0.05)
    parser.add_argument('--samples', type=int, default=8)
    parser.add_argument('--save-every', type=int, default=5, help='spot machine: it may vanish at any moment')
    return parser.parse_args()


if __name__ == '__main__':
    args = get_args()
    logging.basicConfig(level=logging.INFO, format='%(levelname)s: %(message)s')
    torch.manual_seed(0)
    images, masks = load_quadrats(dir_root / 'quadrats.npz')
    train_model(UNet(3, 3), images, masks, args)
