"""Learn where in a photograph a 64x64 crop comes from (8x8 grid of positions)."""
import numpy as np
import torch
import torch.nn as nn
from skimage import data
from torch.utils.data import DataLoader, Dataset

GRID, SIZE = 8, 64


class Crops(Dataset):
    """Random crops with sensor noise, as uint8 HWC; scaled to float on the batch."""

    def __init__(self, photo, n):
        self.photo = photo
        self.n = n
        self.span = photo.shape[0] - SIZE

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        y, x, amp = torch.randint(0, self.span, (3,)).tolist()
        crop = self.photo[y:y + SIZE, x:x + SIZE] // 2
        crop += np.random.randint(0, 10 + amp % 40, crop.shape, dtype=np.uint8)
        label = (y * GRID // self.span) * GRID + x * GRID // self.span
        return torch.from_numpy(crop), label


def conv(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


def main():
    torch.manual_seed(0)
    loader = DataLoader(Crops(data.astronaut(), 32000), batch_size=32, shuffle=True, drop_last=True,
                        num_workers=2, persistent_workers=True)
    model = nn.Sequential(
        conv(3, 32, 2), conv(32, 32), conv(32, 64, 2), conv(64, 64), conv(64, 128, 2), conv(128, 128),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, GRID * GRID))
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(20):
        for images, labels in loader:
            x = images.permute(0, 3, 1, 2).float().div_(64).sub_(1)
            loss = criterion(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 25 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
