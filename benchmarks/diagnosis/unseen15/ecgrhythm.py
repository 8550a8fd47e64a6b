# ecgrhythm.py  - classify rhythm (normal / AF / flutter / noise) from single lead ECG
#
# Port of my train_ecg.m (Deep Learning Toolbox, trainNetwork with
# 'Plots','training-progress').

import os
import tempfile
import numpy as np
import torch
import torch.nn as nn
import scipy.io as sio
import scipy.signal as sig
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt

# ---------------------------------------------------------------- parameters
fs         = 125            # Hz
T          = 8              # s
nRec       = 2400
classes    = ['N', 'AF', 'AFL', 'Noise']
batchSize  = 32
maxEpochs  = 60
initialLR  = 2e-3
dropPeriod = 15
valFreq    = 5              # epochs
folder     = os.path.join(tempfile.gettempdir(), 'ecgrhythm')
matFile    = os.path.join(folder, 'ecg.mat')
figFile    = os.path.join(folder, 'training_progress.png')


# ---------------------------------------------------------------- data
def simulate(label, rng):
    n = fs * T
    t = np.arange(n) / fs
    hr = rng.uniform(55, 100)
    if label == 1:
        rr = rng.uniform(0.4, 1.1, 60)
    elif label == 2:
        rr = np.full(60, 60 / rng.uniform(95, 150)) + 0.005 * rng.standard_normal(60)
    else:
        rr = 60 / hr + 0.02 * rng.standard_normal(60)
    beats = np.cumsum(rr) - rng.uniform(0, 1)
    x = np.zeros(n)
    for b in beats[(beats > -0.5) & (beats < T + 0.5)]:
        x += 1.0 * np.exp(-((t - b) / 0.012) ** 2)                     # R
        x -= 0.2 * np.exp(-((t - b - 0.03) / 0.012) ** 2)              # S
        x += 0.25 * np.exp(-((t - b - 0.26) / 0.05) ** 2)              # T
        if label == 0 or label == 3:
            x += 0.12 * np.exp(-((t - b + 0.16) / 0.03) ** 2)          # P
    if label == 1:
        x += 0.05 * np.sin(2 * np.pi * rng.uniform(5, 8) * t + rng.uniform(0, 6))
    if label == 2:
        x += 0.10 * sig.sawtooth(2 * np.pi * rng.uniform(4.5, 5.5) * t)
    level = 0.6 if label == 3 else 0.06
    x += level * rng.standard_normal(n) + 0.1 * np.sin(2 * np.pi * 0.3 * t)
    return x


if not os.path.exists(matFile):
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(1)
    Y = rng.integers(0, 4, nRec)
    X = np.stack([simulate(y, rng) for y in Y])
    sio.savemat(matFile, {'X': X, 'Y': Y})

S = sio.loadmat(matFile)
X = S['X']
Y = S['Y'].ravel()

# band pass filter and z-score
b, a = sig.butter(2, [0.5 / (fs / 2), 40 / (fs / 2)], 'bandpass')
X = sig.filtfilt(b, a, X, axis=1)
X = (X - X.mean(axis=1, keepdims=True)) / X.std(axis=1, keepdims=True)

X = torch.tensor(X, dtype=torch.float32).unsqueeze(1)
Y = torch.tensor(Y, dtype=torch.long)
nTrain = round(0.8 * nRec)
XTrain, YTrain = X[:nTrain], Y[:nTrain]
XVal,   YVal   = X[nTrain:], Y[nTrain:]


# ---------------------------------------------------------------- network
def convBlock(nIn, nOut, width):
    return nn.Sequential(nn.Conv1d(nIn, nOut, width, stride=2, padding=width // 2),
                         nn.BatchNorm1d(nOut), nn.ReLU())


torch.manual_seed(0)
net = nn.Sequential(
    convBlock(1, 16, 15),
    convBlock(16, 32, 9),
    convBlock(32, 48, 7),
    convBlock(48, 64, 5),
    convBlock(64, 64, 5),
    nn.AdaptiveAvgPool1d(1), nn.Flatten(),
    nn.Dropout(0.2),
    nn.Linear(64, len(classes)))

lossFcn   = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=initialLR)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, dropPeriod, 0.3)

# ---------------------------------------------------------------- progress plot
fig, (axAcc, axLoss) = plt.subplots(2, 1, figsize=(8, 6), sharex=True)
lineAcc,  = axAcc.plot([], [], 'b-', lw=1)
lineVal,  = axAcc.plot([], [], 'ko--', ms=4)
lineLoss, = axLoss.plot([], [], 'r-', lw=1)
axAcc.set_ylabel('Accuracy (%)')
axAcc.set_ylim(0, 100)
axAcc.grid(True)
axLoss.set_ylabel('Loss')
axLoss.set_xlabel('Iteration')
axLoss.grid(True)


def updatePlot(k, epoch):
    it = np.arange(1, k + 1)
    lineAcc.set_data(it, trainAcc)
    lineVal.set_data(valIter, valAcc)
    lineLoss.set_data(it, trainLoss)
    axLoss.relim()
    axLoss.autoscale_view()
    axAcc.set_title('Training Progress (epoch %d, iteration %d)' % (epoch, k))
    fig.savefig(figFile)


# ---------------------------------------------------------------- training loop
trainAcc, trainLoss, valAcc, valIter = [], [], [], []
iteration = 0
for epoch in range(1, maxEpochs + 1):
    net.train()
    idx = torch.randperm(nTrain)
    for first in range(0, nTrain - batchSize + 1, batchSize):
        iteration += 1
        sel = idx[first:first + batchSize]
        scores = net(XTrain[sel])
        loss = lossFcn(scores, YTrain[sel])

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        trainLoss.append(loss.item())
        trainAcc.append(100 * (scores.argmax(1) == YTrain[sel]).float().mean().item())
        updatePlot(iteration, epoch)
    scheduler.step()

    if epoch % valFreq == 0:
        net.eval()
        with torch.no_grad():
            pred = net(XVal).argmax(1)
        valAcc.append(100 * (pred == YVal).float().mean().item())
        valIter.append(iteration)
        print('Epoch %3d | Iter %5d | Loss %.4f | Train %.1f%% | Val %.1f%%' % (
            epoch, iteration, np.mean(trainLoss[-50:]), np.mean(trainAcc[-50:]), valAcc[-1]))

torch.save(net.state_dict(), os.path.join(folder, 'net.pt'))
