import argparse
import logging
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from skimage.data import binary_blobs
from torch import optim
from torch.utils.data import DataLoader, Dataset, random_split

dir_base = Path(tempfile.gettempdir()) / 'unet_blobs_train'
dir_img = dir_base / 'imgs'
dir_mask = dir_base / 'masks'
dir_checkpoint = dir_base / 'checkpoints'


def create_data(n=400, size=96):
    if (dir_base / 'done').exists():
        return
    dir_img.mkdir(parents=True, exist_ok=True)
    dir_mask.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    yy, xx = np.mgrid[:size, :size] / size
    for i in range(n):
        m = binary_blobs(size, blob_size_fraction=0.18, volume_fraction=0.35, rng=i)
        shade = rng.uniform(-60, 60) * yy + rng.uniform(-60, 60) * xx
        img = 110 + 45 * m + shade + rng.normal(0, 30, (size, size))
        rgb = np.stack([img, img * 0.9, img * rng.uniform(0.7, 1.1)], -1).clip(0, 255).astype(np.uint8)
        Image.fromarray(rgb).save(dir_img / f'{i:04d}.png')
        Image.fromarray(m.astype(np.uint8)).save(dir_mask / f'{i:04d}.png')
    (dir_base / 'done').touch()


class BasicDataset(Dataset):
    def __init__(self, images_dir, mask_dir):
        self.ids = sorted(os.path.splitext(f)[0] for f in os.listdir(images_dir))
        # small enough, so everything is decoded up front
        self.images = [np.asarray(Image.open(images_dir / f'{i}.png'), dtype=np.float32).transpose(2, 0, 1) / 255.0
                       for i in self.ids]
        self.masks = [np.asarray(Image.open(mask_dir / f'{i}.png')).astype(np.int64) for i in self.ids]
        logging.info(f'Creating dataset with {len(self.ids)} examples')

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, idx):
        return {
            'image': torch.as_tensor(self.images[idx].copy()).float().contiguous(),
            'mask': torch.as_tensor(self.masks[idx].copy()).long().contiguous()
        }


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
            nn.ReLU(inplace=True)
        )

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, w=8):
        super().__init__()
        self.n_classes = n_classes
        self.inc = DoubleConv(n_channels, w)
        self.down1 = DoubleConv(w, w * 2)
        self.down2 = DoubleConv(w * 2, w * 4)
        self.down3 = DoubleConv(w * 4, w * 8)
        self.up1 = Up(w * 8, w * 4)
        self.up2 = Up(w * 4, w * 2)
        self.up3 = Up(w * 2, w)
        self.outc = nn.Conv2d(w, n_classes, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(F.max_pool2d(x1, 2))
        x3 = self.down2(F.max_pool2d(x2, 2))
        x4 = self.down3(F.max_pool2d(x3, 2))
        x = self.up1(x4, x3)
        x = self.up2(x, x2)
        x = self.up3(x, x1)
        return self.outc(x)


def dice_coeff(input, target, epsilon=1e-6):
    inter = 2 * (input * target).sum(dim=(-1, -2))
    sets_sum = input.sum(dim=(-1, -2)) + target.sum(dim=(-1, -2))
    sets_sum = torch.where(sets_sum == 0, inter, sets_sum)
    return ((inter + epsilon) / (sets_sum + epsilon)).mean()


@torch.inference_mode()
def evaluate(net, dataloader):
    net.eval()
    dice_score = 0
    for batch in dataloader:
        image, mask_true = batch['image'], batch['mask']
        mask_pred = net(image).argmax(dim=1)
        dice_score += dice_coeff((mask_pred == 1).float(), (mask_true == 1).float())
    net.train()
    return dice_score / max(len(dataloader), 1)


def train_model(model, epochs, batch_size, learning_rate, val_percent, save_checkpoint=True,
                weight_decay=1e-8, momentum=0.9, gradient_clipping=1.0):
    dataset = BasicDataset(dir_img, dir_mask)
    n_val = int(len(dataset) * val_percent)
    n_train = len(dataset) - n_val
    train_set, val_set = random_split(dataset, [n_train, n_val], generator=torch.Generator().manual_seed(0))

    loader_args = dict(batch_size=batch_size, num_workers=0, pin_memory=False)
    train_loader = DataLoader(train_set, shuffle=True, drop_last=True, **loader_args)
    val_loader = DataLoader(val_set, shuffle=False, drop_last=True, **loader_args)

    logging.info(f'''Starting training:
        Epochs:          {epochs}
        Batch size:      {batch_size}
        Learning rate:   {learning_rate}
        Training size:   {n_train}
        Validation size: {n_val}
        Checkpoints:     {save_checkpoint}
    ''')

    optimizer = optim.RMSprop(model.parameters(), lr=learning_rate, weight_decay=weight_decay, momentum=momentum)
    criterion = nn.CrossEntropyLoss()
    global_step = 0
    division_step = max(n_train // (8 * batch_size), 1)
    start = time.time()

    for epoch in range(1, epochs + 1):
        model.train()
        epoch_loss = 0
        for batch in train_loader:
            images, true_masks = batch['image'], batch['mask']
            masks_pred = model(images)
            loss = criterion(masks_pred, true_masks)
            loss += 1 - dice_coeff(F.softmax(masks_pred, dim=1)[:, 1], (true_masks == 1).float())

            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clipping)
            optimizer.step()

            global_step += 1
            epoch_loss += loss.item()
            if global_step % 10 == 0:
                logging.info(f'epoch {epoch} step {global_step} loss (batch) {loss.item():.4f} '
                             f'{global_step * batch_size / (time.time() - start):.1f} img/s')

            # Evaluation round
            if global_step % division_step == 0:
                val_score = evaluate(model, val_loader)
                logging.info('Validation Dice score: {:.4f}'.format(val_score))

        if save_checkpoint:
            dir_checkpoint.mkdir(parents=True, exist_ok=True)
            torch.save(model.state_dict(), str(dir_checkpoint / 'checkpoint_epoch_last.pth'))
            logging.info(f'Checkpoint {epoch} saved! mean loss {epoch_loss / len(train_loader):.4f}')


def get_args():
    parser = argparse.ArgumentParser(description='Train the UNet on images and target masks')
    parser.add_argument('--epochs', '-e', metavar='E', type=int, default=100, help='Number of epochs')
    parser.add_argument('--batch-size', '-b', dest='batch_size', metavar='B', type=int, default=8)
    parser.add_argument('--learning-rate', '-l', metavar='LR', type=float, default=1e-4, dest='lr')
    parser.add_argument('--validation', '-v', dest='val', type=float, default=25.0)
    return parser.parse_args()


if __name__ == '__main__':
    args = get_args()
    logging.basicConfig(level=logging.INFO, format='%(levelname)s: %(message)s')
    torch.manual_seed(0)
    create_data()
    model = UNet(n_channels=3, n_classes=2)
    train_model(model, args.epochs, args.batch_size, args.lr, args.val / 100)
