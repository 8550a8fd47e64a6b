"""Knowledge distillation (Hinton et al.) of a ResNet into a pocket network."""
import copy
import os
import random
import tempfile
import time
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, TensorDataset

WORK = os.path.join(tempfile.gettempdir(), 'distill_patterns')
NUM_CLASSES = 10


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def draw_patterns(n, size, seed):
    """Ten families of procedural textures with random colours and noise."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[:size, :size].astype(np.float32) / size
    labels = rng.integers(0, NUM_CLASSES, n)
    images = np.empty((n, 3, size, size), np.uint8)
    for i, c in enumerate(labels):
        f, ph, ang = rng.uniform(3, 7), rng.uniform(0, 6.28), rng.uniform(-0.3, 0.3)
        u = xx * np.cos(ang) + yy * np.sin(ang)
        v = -xx * np.sin(ang) + yy * np.cos(ang)
        r = np.hypot(xx - 0.5, yy - 0.5)
        g = [np.sin(6.28 * f * u + ph), np.sin(6.28 * f * v + ph), np.sin(6.28 * f * r + ph),
             np.sin(6.28 * f * u) * np.sin(6.28 * f * v), np.sign(np.sin(6.28 * f * u + ph)),
             np.sin(6.28 * f * (u + v)), np.sin(6.28 * f * u * v), np.sin(6.28 * f * u * u + ph),
             np.maximum(np.sin(6.28 * f * u), np.sin(6.28 * f * v)), np.cos(np.arctan2(yy - .5, xx - .5) * 6 + ph)][c]
        col = rng.uniform(20, 100, (3, 1, 1))
        img = 128 + col * g[None] + rng.normal(0, 30, (3, size, size))
        images[i] = img.clip(0, 255)
    return images, labels


def get_sets():
    path = os.path.join(WORK, 'patterns.npz')
    if not os.path.exists(path):
        os.makedirs(WORK, exist_ok=True)
        xi, yi = draw_patterns(6000, 32, 0)
        np.savez(path, x=xi, y=yi)
    blob = np.load(path)
    x = torch.from_numpy(blob['x']).float().div_(127.5).sub_(1.0)
    y = torch.from_numpy(blob['y']).long()
    return TensorDataset(x[:5400], y[:5400]), TensorDataset(x[5400:], y[5400:])


def build_teacher():
    net = torchvision.models.resnet18(weights=None, num_classes=NUM_CLASSES)
    net.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    net.maxpool = nn.MaxPool2d(2)
    return net


def build_student():
    def dw(i, o, s):
        return nn.Sequential(nn.Conv2d(i, i, 3, s, 1, groups=i, bias=False), nn.BatchNorm2d(i), nn.ReLU(),
                             nn.Conv2d(i, o, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
    return nn.Sequential(nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
                         dw(24, 48, 1), dw(48, 96, 2), dw(96, 128, 2),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, NUM_CLASSES))


class DistillTrainer:
    def __init__(self, teacher, student, train_set, test_set, hp):
        self.teacher = teacher
        self.student = student
        self.ema = copy.deepcopy(student)
        self.hp = hp
        self.train_loader = DataLoader(train_set, batch_size=hp.batch, shuffle=True, drop_last=True)
        self.test_loader = DataLoader(test_set, batch_size=200)
        self.opt = torch.optim.SGD(student.parameters(), lr=hp.lr, momentum=0.9, nesterov=True, weight_decay=5e-4)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, hp.epochs)
        self.step = 0
        self.log = {'loss': [], 'acc': []}

    def kd_loss(self, s, t, y):
        T = self.hp.T
        soft = F.kl_div(F.log_softmax(s / T, 1), F.softmax(t / T, 1), reduction='batchmean') * T * T
        return self.hp.alpha * soft + (1 - self.hp.alpha) * F.cross_entropy(s, y)

    @torch.no_grad()
    def update_ema(self):
        for a, b in zip(self.ema.state_dict().values(), self.student.state_dict().values()):
            if a.is_floating_point():
                a.lerp_(b, 1 - self.hp.ema)
            else:
                a.copy_(b)

    def augment(self, x):
        if random.random() < 0.5:
            x = x.flip(3)
        dy, dx = random.randint(-3, 3), random.randint(-3, 3)
        return torch.roll(x, (dy, dx), (2, 3))

    def train_epoch(self, epoch):
        self.teacher.eval()
        self.student.train()
        start, seen = time.time(), 0
        for x, y in self.train_loader:
            x = self.augment(x)
            t_logits = self.teacher(x)
            s_logits = self.student(x)
            loss = self.kd_loss(s_logits, t_logits, y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.update_ema()
            self.step += 1
            seen += x.size(0)
            self.log['loss'].append(loss.item())
            if self.step % 10 == 0:
                print('epoch %d step %d loss %.4f  %.1f img/s' % (
                    epoch, self.step, np.mean(self.log['loss'][-10:]), seen / (time.time() - start)), flush=True)
        self.sched.step()

    @torch.no_grad()
    def test(self):
        self.ema.eval()
        good = sum((self.ema(x).argmax(1) == y).sum().item() for x, y in self.test_loader)
        self.log['acc'].append(good / len(self.test_loader.dataset))
        print('test acc (ema) %.4f' % self.log['acc'][-1], flush=True)

    def fit(self):
        for epoch in range(self.hp.epochs):
            self.train_epoch(epoch)
            self.test()


def main():
    set_seed(1)
    train_set, test_set = get_sets()
    teacher, student = build_teacher(), build_student()
    ckpt = os.path.join(WORK, 'teacher.pt')
    if os.path.exists(ckpt):
        teacher.load_state_dict(torch.load(ckpt))
    hp = SimpleNamespace(batch=32, lr=0.05, epochs=60, T=4.0, alpha=0.7, ema=0.995)
    DistillTrainer(teacher, student, train_set, test_set, hp).fit()


if __name__ == '__main__':
    main()
