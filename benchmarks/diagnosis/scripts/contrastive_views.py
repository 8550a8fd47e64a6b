"""Two augmented views of each picture, for contrastive training."""

import torch
from skimage import data
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

VIEW = 96
KERNEL = 23
BATCH = 16


class Views(Dataset):
    def __init__(self):
        sources = [data.astronaut(), data.chelsea(), data.coffee(), data.rocket()]
        self.pictures = [torch.from_numpy(one.copy()).permute(2, 0, 1) for one in sources]
        self.augment = v2.Compose(
            [
                v2.GaussianBlur(KERNEL, sigma=(0.1, 3.0)),
                v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
                v2.RandomResizedCrop(VIEW, scale=(0.2, 1.0), antialias=True),
                v2.ToDtype(torch.float32, scale=True),
            ]
        )

    def __len__(self):
        return 50_000

    def __getitem__(self, index):
        picture = self.pictures[index % 4]
        return self.augment(picture), self.augment(picture)


def nt_xent(a, b, temperature=0.2):
    z = nn.functional.normalize(torch.cat([a, b]), dim=1)
    scores = z @ z.T / temperature
    scores.fill_diagonal_(-1e9)
    n = len(a)
    targets = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return nn.functional.cross_entropy(scores, targets)


def main():
    encoder = nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 64)
    )
    optimizer = torch.optim.Adam(encoder.parameters())
    loader = DataLoader(Views(), batch_size=BATCH, shuffle=True, num_workers=2, drop_last=True)
    for one, two in loader:
        loss = nt_xent(encoder(one), encoder(two))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
