# -*- coding: utf-8 -*-
"""Day-ahead load forecasting for distribution feeders.

Ported from our TensorFlow 1.x graph code (static_rnn + BasicLSTMCell).
"""
import os
import sys
import time
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class FLAGS(object):
    num_feeders = 60
    num_hours = 24 * 365
    window = 336          # two weeks of history
    horizon = 24
    batch_size = 48
    embed_dim = 128
    lstm_units = 48
    learning_rate = 1e-3
    keep_prob = 0.9
    max_grad_norm = 1.0
    max_steps = 4000
    display_step = 20
    data_dir = os.path.join(tempfile.gettempdir(), "loadcast")


def make_data(path):
    rng = np.random.RandomState(7)
    t = np.arange(FLAGS.num_hours)
    temp = (10 + 9 * np.sin(2 * np.pi * (t / 24.0 - 110) / 365)
            + 4 * np.sin(2 * np.pi * (t - 9) / 24)
            + np.convolve(rng.randn(FLAGS.num_hours), np.ones(36) / 6, "same"))
    load = np.zeros((FLAGS.num_feeders, FLAGS.num_hours), np.float32)
    for f in range(FLAGS.num_feeders):
        base = rng.gamma(4, 0.8)
        heat = rng.uniform(0.02, 0.09)
        cool = rng.uniform(0.0, 0.06)
        weekend = rng.uniform(0.65, 1.1)
        day = 1 + 0.35 * np.sin(2 * np.pi * (t - rng.uniform(6, 10)) / 24) \
            + 0.15 * np.sin(4 * np.pi * (t - rng.uniform(0, 6)) / 24)
        wk = np.where((t // 24) % 7 >= 5, weekend, 1.0)
        load[f] = base * day * wk + heat * np.maximum(15 - temp, 0) \
            + cool * np.maximum(temp - 21, 0) + 0.08 * rng.randn(FLAGS.num_hours)
    np.savez(path, load=load, temp=temp.astype(np.float32))


def load_data():
    if not os.path.isdir(FLAGS.data_dir):
        os.makedirs(FLAGS.data_dir)
    path = os.path.join(FLAGS.data_dir, "feeders.npz")
    if not os.path.exists(path):
        make_data(path)
    with np.load(path) as z:
        return z["load"], z["temp"]


class DataSet(object):
    """Same interface as input_data.DataSet of the MNIST tutorial."""

    def __init__(self, load, temp, first, last):
        self.mean = load.mean(axis=1, keepdims=True)
        self.std = load.std(axis=1, keepdims=True)
        self.load = ((load - self.mean) / self.std).astype(np.float32)
        hours = np.arange(load.shape[1])
        self.exog = np.stack([
            (temp - temp.mean()) / temp.std(),
            np.sin(2 * np.pi * hours / 24), np.cos(2 * np.pi * hours / 24),
            np.sin(2 * np.pi * hours / 168), np.cos(2 * np.pi * hours / 168),
            ((hours // 24) % 7 >= 5)], axis=1).astype(np.float32)
        self.first, self.last = first, last
        self.rng = np.random.RandomState(0)

    def next_batch(self, n):
        w, h = FLAGS.window, FLAGS.horizon
        feeder = self.rng.randint(0, self.load.shape[0], n)
        start = self.rng.randint(self.first, self.last - w - h, n)
        idx = start[:, None] + np.arange(w)[None, :]
        x = np.concatenate([self.load[feeder[:, None], idx][:, :, None],
                            self.exog[idx]], axis=2)
        y = self.load[feeder[:, None], start[:, None] + w + np.arange(h)[None, :]]
        return torch.from_numpy(x), torch.from_numpy(y)


class LoadModel(nn.Module):
    def __init__(self, n_in):
        super(LoadModel, self).__init__()
        self.input_proj = nn.Sequential(nn.Linear(n_in, FLAGS.embed_dim), nn.Tanh())
        self.cell = nn.LSTMCell(FLAGS.embed_dim, FLAGS.lstm_units)
        self.dropout = nn.Dropout(1.0 - FLAGS.keep_prob)
        self.output = nn.Linear(FLAGS.lstm_units, FLAGS.horizon)

    def forward(self, x):
        inputs = self.dropout(self.input_proj(x))
        batch = x.size(0)
        # zero_state
        c = torch.zeros(batch, FLAGS.lstm_units)
        h = torch.zeros(batch, FLAGS.lstm_units)
        # static_rnn
        for t in range(FLAGS.window):
            h, c = self.cell(inputs[:, t, :], (h, c))
        return self.output(h)


def main():
    torch.manual_seed(1)
    load, temp = load_data()
    split = int(FLAGS.num_hours * 0.8)
    train = DataSet(load, temp, 0, split)
    test = DataSet(load, temp, split, FLAGS.num_hours)

    model = LoadModel(7)
    train_op = torch.optim.Adam(model.parameters(), lr=FLAGS.learning_rate)

    t0 = time.time()
    running = 0.0
    for step in range(1, FLAGS.max_steps + 1):
        batch_x, batch_y = train.next_batch(FLAGS.batch_size)
        model.train()
        pred = model(batch_x)
        loss = F.smooth_l1_loss(pred, batch_y)
        train_op.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), FLAGS.max_grad_norm)
        train_op.step()
        running += loss.item()

        if step % FLAGS.display_step == 0:
            print("Step %d, minibatch loss = %.4f, %.1f sec" % (
                step, running / FLAGS.display_step, time.time() - t0))
            sys.stdout.flush()
            running = 0.0
        if step % 500 == 0:
            model.eval()
            with torch.no_grad():
                x, y = test.next_batch(256)
                mae = (model(x) - y).abs().mean().item()
            print("Step %d, test MAE (normalised) = %.4f" % (step, mae))
    print("Optimization finished")


if __name__ == "__main__":
    main()
