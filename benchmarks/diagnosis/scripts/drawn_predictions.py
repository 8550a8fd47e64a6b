"""Each step draws the predictions into a picture that is looked at later."""

import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CANVAS = 500
BATCH = 64


def draw(points, guesses):
    picture = Image.new("RGB", (CANVAS, CANVAS), "white")
    pen = ImageDraw.Draw(picture)
    for (x, y), guess in zip(points.tolist(), guesses.tolist(), strict=True):
        box = (x * CANVAS - 4, y * CANVAS - 4, x * CANVAS + 4, y * CANVAS + 4)
        pen.ellipse(box, fill="red" if guess else "blue")
    return picture.resize((CANVAS // 2, CANVAS // 2), Image.Resampling.LANCZOS)


class Boundary(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def forward(self, x):
        return self.net(x)


def main():
    points = torch.rand(6400, 2)
    labels = ((points - 0.5).norm(dim=1) < 0.3).long()
    loader = DataLoader(TensorDataset(points, labels), batch_size=BATCH, shuffle=True)
    model = Boundary()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    frames = []
    for epoch in range(200):
        for x, y in loader:
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            frames = [*frames[-20:], draw(x, logits.argmax(1))]


if __name__ == "__main__":
    main()
