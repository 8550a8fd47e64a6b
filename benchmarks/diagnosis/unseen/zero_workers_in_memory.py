'''Homework 4: CNN on synthetic shapes'''
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split

BATCH_SIZE = 32
NUM_FILTERS = 32
NUM_IMAGES = 2000


def draw_shapes(n, size=32):
    rng = np.random.RandomState(4)
    y, x = np.mgrid[:size, :size]
    images = rng.rand(n, 3, size, size).astype('float32') * 0.4
    labels = rng.randint(0, 4, n)
    for img, label in zip(images, labels):
        cx, cy = rng.randint(10, size - 10, 2)
        r = rng.randint(5, 10)
        if label == 0:
            mask = (x - cx) ** 2 + (y - cy) ** 2 < r ** 2
        elif label == 1:
            mask = (abs(x - cx) < r) & (abs(y - cy) < r)
        elif label == 2:
            mask = abs(x - cx) + abs(y - cy) < r
        else:
            mask = (abs(x - cx) < 2) | (abs(y - cy) < 2)
        img[:, mask] += rng.rand(3, 1).astype('float32') * 0.6
    return torch.from_numpy(images), torch.from_numpy(labels).long()


class CNN(nn.Module):
    def __init__(self):
        super(CNN, self).__init__()
        f = NUM_FILTERS
        self.conv = nn.Sequential(
            nn.Conv2d(3, f, 3, padding=1), nn.ReLU(),
            nn.Conv2d(f, f, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(f, 2 * f, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(2 * f, 2 * f, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )
        self.fc1 = nn.Linear(2 * f * 16, 128)
        self.fc2 = nn.Linear(128, 4)

    def forward(self, x):
        x = self.conv(x)
        x = x.view(x.size(0), -1)
        return self.fc2(torch.relu(self.fc1(x)))


def evaluate(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x).argmax(1) == y).sum().item()
    model.train()
    return correct / len(loader.dataset)


if __name__ == '__main__':
    torch.manual_seed(4)
    X, y = draw_shapes(NUM_IMAGES)
    dataset = TensorDataset(X, y)
    train_set, val_set = random_split(dataset, [NUM_IMAGES - 64, 64])
    train_loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True, num_workers=0)
    val_loader = DataLoader(val_set, batch_size=64, num_workers=0)

    model = CNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0005)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(300):
        train_loss = 0
        for batch_idx, (data, target) in enumerate(train_loader):
            optimizer.zero_grad()
            output = model(data)
            loss = criterion(output, target)
            loss.backward()
            optimizer.step()
            train_loss += loss.item()
        val_acc = evaluate(model, val_loader)
        print('Epoch: {} \tTrain loss: {:.6f} \tVal acc: {:.2f}%'.format(
            epoch + 1, train_loss / len(train_loader), 100 * val_acc))
