import os
import random
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader, random_split

# ---------------------------------------------------------------- settings
FOLDER = os.path.join(tempfile.gettempdir(), "chess_value")
POSITIONS = 60000
BATCH_SIZE = 448
LEARNING_RATE = 0.02
EPOCHS = 8
HIDDEN = 1536

PIECES = {"P": 0, "N": 1, "B": 2, "R": 3, "Q": 4, "K": 5,
          "p": 6, "n": 7, "b": 8, "r": 9, "q": 10, "k": 11}
WORTH = {"P": 100, "N": 310, "B": 330, "R": 500, "Q": 950, "K": 0}


def random_fen(rng):
    """A random legal-looking position, good enough until the lichess dump is converted."""
    squares = rng.sample(range(64), rng.randint(6, 30))
    board = [None] * 64
    board[squares[0]], board[squares[1]] = "K", "k"
    for sq in squares[2:]:
        p = rng.choice("PPPPPPPPNNBBRRQ")
        board[sq] = p if rng.random() < 0.5 else p.lower()
    rows = []
    for r in range(8):
        row, gap = "", 0
        for p in board[8 * r:8 * r + 8]:
            if p is None:
                gap += 1
            else:
                row += (str(gap) if gap else "") + p
                gap = 0
        rows.append(row + (str(gap) if gap else ""))
    turn = rng.choice("wb")
    castling = "".join(c for c in "KQkq" if rng.random() < 0.3) or "-"
    score = 0.0
    for sq, p in enumerate(board):
        if p is not None:
            centre = 4 - (abs(sq % 8 - 3.5) + abs(sq // 8 - 3.5)) / 2
            v = WORTH[p.upper()] + 8 * centre
            score += v if p.isupper() else -v
    score += (30 if turn == "w" else -30) + rng.gauss(0, 25)
    return f"{'/'.join(rows)} {turn} {castling} - 0 {rng.randint(1, 80)}", int(score)


def prepare():
    path = os.path.join(FOLDER, "positions.csv")
    if not os.path.exists(path):
        os.makedirs(FOLDER, exist_ok=True)
        rng = random.Random(2017)
        with open(path + ".part", "w") as f:
            for _ in range(POSITIONS):
                fen, cp = random_fen(rng)
                f.write(f"{fen},{cp}\n")
        os.replace(path + ".part", path)
    return path


# ---------------------------------------------------------------- data
def fen_to_array(fen):
    """12 planes of 64 squares, then side to move and the four castling rights."""
    board, turn, castling = fen.split(" ")[:3]
    x = np.zeros(12 * 64 + 5, dtype=np.float32)
    sq = 0
    for ch in board:
        if ch == "/":
            continue
        if ch.isdigit():
            sq += int(ch)
        else:
            x[PIECES[ch] * 64 + sq] = 1
            sq += 1
    x[768] = turn == "w"
    for i, right in enumerate("KQkq"):
        x[769 + i] = right in castling
    return x


class ChessDataset(Dataset):
    def __init__(self, path):
        with open(path) as f:
            self.lines = f.readlines()

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, idx):
        fen, cp = self.lines[idx].strip().split(",")
        # squash centipawns to a winning chance
        win = 1 / (1 + 10 ** (-int(cp) / 400))
        return torch.from_numpy(fen_to_array(fen)), torch.tensor([win], dtype=torch.float32)


# ---------------------------------------------------------------- model
class ValueNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(773, HIDDEN)
        self.fc2 = nn.Linear(HIDDEN, HIDDEN)
        self.fc3 = nn.Linear(HIDDEN, HIDDEN)
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, x):
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        x = F.relu(self.fc3(x))
        return torch.sigmoid(self.out(x))


# ---------------------------------------------------------------- training
def validate(net, loader):
    net.eval()
    err = 0.0
    with torch.no_grad():
        for x, y in loader:
            err += (net(x) - y).abs().sum().item()
    net.train()
    return err / len(loader.dataset)


def train():
    torch.manual_seed(1)
    dataset = ChessDataset(prepare())
    val_size = 1024
    train_set, val_set = random_split(dataset, [len(dataset) - val_size, val_size])
    train_loader = DataLoader(train_set, batch_size=BATCH_SIZE, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=BATCH_SIZE)

    net = ValueNet()
    print(net)
    print("parameters:", sum(p.numel() for p in net.parameters()))
    optimizer = torch.optim.SGD(net.parameters(), lr=LEARNING_RATE, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=100, gamma=0.8)
    losses = []

    for epoch in range(EPOCHS):
        start = time.time()
        for i, (x, y) in enumerate(train_loader):
            prediction = net(x)
            loss = F.mse_loss(prediction, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            print(f"\r[{epoch}] {i + 1}/{len(train_loader)}  loss {loss.item():.5f}  "
                  f"mean of 50 {np.mean(losses[-50:]):.5f}", end="", flush=True)
        print(f"\n[{epoch}] val abs error {validate(net, val_loader):.4f}  took {time.time() - start:.1f}s")
        torch.save(net.state_dict(), os.path.join(FOLDER, f"value_{epoch}.pt"))


if __name__ == "__main__":
    train()
