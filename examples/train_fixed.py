"""Trains a small convolutional network on a folder of photographs, one folder a class.

examples/train.py with one correction: the crop comes before the colours are changed.

    python examples/photographs.py --data photographs
    python examples/train_fixed.py --data photographs --out checkpoints
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

train_transform = transforms.Compose(
    [
        transforms.RandomResizedCrop(64),
        transforms.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.1),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
)
val_transform = transforms.Compose(
    [
        transforms.Resize(72),
        transforms.CenterCrop(64),
        transforms.ToTensor(),
        transforms.Normalize(MEAN, STD),
    ]
)


def small_conv_net(classes: int, width: int = 16) -> nn.Sequential:
    """Four convolutions that each halve the picture, then one linear layer: (N, 3, 64, 64) to (N, classes)."""
    layers: list[nn.Module] = []
    channels = 3
    for features in (width, 2 * width, 4 * width, 8 * width):
        layers += [
            nn.Conv2d(channels, features, kernel_size=3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(features),
            nn.ReLU(inplace=True),
        ]
        channels = features
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with train/CLASS/*.jpg and val/CLASS/*.jpg")
    parser.add_argument("--out", type=Path, required=True, help="folder that the checkpoint goes to")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for split in ("train", "val"):
        if not (options.data / split).is_dir():
            parser.error(f"--data {options.data} has no folder {split}: make one with examples/photographs.py")
    return options


def train_one_epoch(
    model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer, device: torch.device, epoch: int
) -> None:
    model.train()
    criterion = nn.CrossEntropyLoss()
    for step, (images, labels) in enumerate(loader):
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"epoch {epoch} step {step}: loss {loss.item():.3f}", flush=True)


def validate(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    """Return the share of photographs that are classified correctly."""
    model.eval()
    correct = 0
    with torch.no_grad():
        for images, labels in loader:
            predicted = model(images.to(device)).argmax(dim=1).cpu()
            correct += int((predicted == labels).sum())
    return correct / len(loader.dataset)


def main() -> None:
    options = parse_options()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)  # the cores are for the workers; a network this small gains nothing from more
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    train_set = datasets.ImageFolder(options.data / "train", train_transform)
    val_set = datasets.ImageFolder(options.data / "val", val_transform)
    train_loader = DataLoader(
        train_set,
        batch_size=options.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        pin_memory=device.type == "cuda",
    )
    val_loader = DataLoader(val_set, batch_size=options.batch_size)

    model = small_conv_net(len(train_set.classes)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4)
    options.out.mkdir(parents=True, exist_ok=True)
    for epoch in range(options.epochs):
        train_one_epoch(model, train_loader, optimizer, device, epoch)
        accuracy = validate(model, val_loader, device)
        print(f"epoch {epoch}: validation accuracy {accuracy:.1%}", flush=True)
        torch.save({"model": model.state_dict(), "epoch": epoch}, options.out / "checkpoint.pt")


if __name__ == "__main__":
    main()
