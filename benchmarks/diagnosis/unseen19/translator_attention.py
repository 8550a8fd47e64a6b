"""Sequence-to-sequence translation with a GRU encoder and an attention decoder.

The language pair is a toy one: English-like sentences and a language with the verb at the end.
"""
import csv
import os
import random
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

DATA_DIR = os.path.join(tempfile.gettempdir(), "translator_attention_cc")
PAIRS = os.path.join(DATA_DIR, "pairs.tsv")

PAD, SOS, EOS = 0, 1, 2
HIDDEN = 96
BATCH_SIZE = 32
EPOCHS = 30
LR = 1e-3

NOUNS = "dog cat child teacher river house garden letter train friend doctor apple song window king".split()
VERBS = "sees finds likes follows remembers paints carries hears watches forgets".split()
ADJS = "old young red small happy quiet green strange tall warm".split()
PLACES = "park city kitchen forest station market school".split()
CONJ = "and but because while".split()


def to_foreign(word):
    return word[::-1] + "o" if len(word) > 4 else word + "an"


def clause(rng):
    def noun_phrase():
        adjs = rng.sample(ADJS, rng.choice([0, 0, 0, 1, 1, 2]))
        noun = rng.choice(NOUNS)
        english = ["the"] + adjs + [noun]
        foreign = [to_foreign(noun)] + [to_foreign(a) + "u" for a in adjs]
        return english, foreign

    (s_en, s_fo), (o_en, o_fo), verb = noun_phrase(), noun_phrase(), rng.choice(VERBS)
    english, place_fo = s_en + [verb] + o_en, []
    if rng.random() < 0.3:
        place = rng.choice(PLACES)
        english = english + ["in", "the", place]
        place_fo = [to_foreign(place) + "lo"]
    return english, s_fo + place_fo + o_fo + [to_foreign(verb)]


def make_pairs():
    os.makedirs(DATA_DIR, exist_ok=True)
    rng = random.Random(3)
    with open(PAIRS + ".part", "w", newline="") as f:
        writer = csv.writer(f, delimiter="\t")
        for _ in range(40000):
            english, foreign = clause(rng)
            while rng.random() < 0.15:
                conj = rng.choice(CONJ)
                en, fo = clause(rng)
                english, foreign = english + [conj] + en, foreign + [to_foreign(conj)] + fo
            writer.writerow([" ".join(english), " ".join(foreign)])
    os.replace(PAIRS + ".part", PAIRS)


class Lang:
    def __init__(self):
        self.word2index = {}
        self.index2word = {PAD: "<pad>", SOS: "<sos>", EOS: "<eos>"}

    def add(self, sentence):
        for word in sentence.split():
            if word not in self.word2index:
                self.word2index[word] = len(self.index2word)
                self.index2word[len(self.index2word)] = word

    def encode(self, sentence):
        return [self.word2index[w] for w in sentence.split()] + [EOS]

    def __len__(self):
        return len(self.index2word)


class Encoder(nn.Module):
    def __init__(self, vocab_size, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden, padding_idx=PAD)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.dropout = nn.Dropout(0.1)

    def forward(self, src, lengths):
        embedded = self.dropout(self.embedding(src))
        packed = nn.utils.rnn.pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        output, hidden = self.gru(packed)
        output, _ = nn.utils.rnn.pad_packed_sequence(output, batch_first=True, total_length=src.size(1))
        return output, hidden


class BahdanauAttention(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.Wa = nn.Linear(hidden, hidden)
        self.Ua = nn.Linear(hidden, hidden)
        self.Va = nn.Linear(hidden, 1)

    def forward(self, query, keys, mask):
        scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).squeeze(2)
        weights = F.softmax(scores.masked_fill(~mask, float("-inf")), dim=1).unsqueeze(1)
        return torch.bmm(weights, keys), weights


class Decoder(nn.Module):
    def __init__(self, vocab_size, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, hidden, padding_idx=PAD)
        self.attention = BahdanauAttention(hidden)
        self.gru = nn.GRU(2 * hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, vocab_size)

    def forward(self, encoder_outputs, hidden, mask, steps, target=None):
        token = torch.full((encoder_outputs.size(0), 1), SOS)
        logits = []
        for t in range(steps):
            context, _ = self.attention(hidden.permute(1, 0, 2), encoder_outputs, mask)
            output, hidden = self.gru(torch.cat((self.embedding(token), context), dim=2), hidden)
            logit = self.out(output)
            logits.append(logit)
            if target is not None:
                token = target[:, t:t + 1]
            else:
                token = logit.argmax(-1).detach()
        return torch.cat(logits, dim=1)


def pad(sequences, length):
    return torch.tensor([s + [PAD] * (length - len(s)) for s in sequences])


@torch.no_grad()
def translate(encoder, decoder, source, target, sentence, max_length):
    encoder.eval()
    ids = torch.tensor([source.encode(sentence)])
    outputs, hidden = encoder(ids, torch.tensor([ids.size(1)]))
    logits = decoder(outputs, hidden, ids != PAD, max_length)
    encoder.train()
    words = []
    for i in logits.argmax(-1)[0].tolist():
        if i == EOS:
            break
        words.append(target.index2word[i])
    return " ".join(words)


def main():
    random.seed(0)
    torch.manual_seed(0)
    if not os.path.exists(PAIRS):
        print("writing sentence pairs ...")
        make_pairs()
    with open(PAIRS, newline="") as f:
        pairs = [tuple(row) for row in csv.reader(f, delimiter="\t")]
    source, target = Lang(), Lang()
    for en, fo in pairs:
        source.add(en)
        target.add(fo)
    src = [source.encode(en) for en, _ in pairs]
    tgt = [target.encode(fo) for _, fo in pairs]
    max_length = max(max(map(len, src)), max(map(len, tgt)))
    print(f"{len(pairs)} pairs, {len(source)} / {len(target)} words, longest sentence {max_length}")

    dataset = TensorDataset(pad(src, max_length), pad(tgt, max_length), torch.tensor([len(s) for s in src]))
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
    encoder, decoder = Encoder(len(source), HIDDEN), Decoder(len(target), HIDDEN)
    params = list(encoder.parameters()) + list(decoder.parameters())
    optimizer = torch.optim.Adam(params, lr=LR)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)

    for epoch in range(EPOCHS):
        start, total = time.time(), 0.0
        for i, (x, y, lengths) in enumerate(loader, 1):
            outputs, hidden = encoder(x, lengths)
            logits = decoder(outputs, hidden, x != PAD, y.size(1), y)
            loss = criterion(logits.reshape(-1, logits.size(-1)), y.reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(params, 1.0)
            optimizer.step()
            total += loss.item()
            if i % 50 == 0:
                print(f"epoch {epoch} batch {i}/{len(loader)} loss {total / 50:.4f} ({time.time() - start:.0f} s)")
                total = 0.0
            if i % 200 == 0:
                en, fo = random.choice(pairs)
                print("  >", en, "\n  =", fo, "\n  <", translate(encoder, decoder, source, target, en, max_length))


if __name__ == "__main__":
    main()
