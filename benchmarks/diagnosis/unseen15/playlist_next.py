import os, sys, time, json, tempfile
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F

# next-track model for the radio app
# usage: python playlist_next.py [epochs]

D = os.path.join(tempfile.gettempdir(), 'playlist_next')
N_TRACKS = 200_000
N_LISTS = 60_000
LEN = 12          # tracks of context
DIM = 48
NEG = 20
B = 128
EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 20

def build():
    fn = os.path.join(D, 'lists.npy')
    if os.path.exists(fn):
        return np.load(fn)
    os.makedirs(D, exist_ok=True)
    r = np.random.default_rng(5)
    genre_start = np.sort(r.integers(0, N_TRACKS - 3000, 150))
    g = r.integers(0, 150, N_LISTS)
    # zipf inside a genre, some tracks from elsewhere
    off = np.minimum(r.zipf(1.3, (N_LISTS, LEN + 1)), 2999)
    x = genre_start[g][:, None] + off
    other = r.random(x.shape) < 0.1
    x[other] = r.integers(0, N_TRACKS, other.sum())
    np.save(fn, x.astype(np.int64))
    return np.load(fn)


class Radio(nn.Module):
    def __init__(self):
        super().__init__()
        self.track = nn.Embedding(N_TRACKS, DIM)
        self.bias = nn.Embedding(N_TRACKS, 1)      # popularity
        nn.init.normal_(self.track.weight, std=0.1)
        nn.init.zeros_(self.bias.weight)
        self.pos = nn.Parameter(torch.zeros(LEN, DIM))
        self.att = nn.Linear(DIM, 1)
        self.tower = nn.Sequential(nn.Linear(DIM, 128), nn.ReLU(), nn.Linear(128, DIM))

    def user(self, ctx):
        e = self.track(ctx) + self.pos
        w = self.att(torch.tanh(e)).softmax(1)
        return self.tower((w * e).sum(1))

    def score(self, u, items):
        return (self.track(items) * u.unsqueeze(1)).sum(-1) + self.bias(items).squeeze(-1)

    def small(self):
        return [self.pos] + list(self.att.parameters()) + list(self.tower.parameters())


def hard_negatives(model, u, neg, k):
    # keep the k of the candidates that the model likes best
    with torch.no_grad():
        s = model.score(u, neg)
    return neg.gather(1, s.topk(k, 1).indices)


def hitrate(model, val, n=10):
    model.eval()
    hits = 0
    with torch.no_grad():
        g = torch.Generator().manual_seed(0)
        for i in range(0, len(val), 256):
            b = val[i:i + 256]
            u = model.user(b[:, :LEN])
            items = torch.cat([b[:, LEN:], torch.randint(N_TRACKS, (len(b), 200), generator=g)], 1)
            s = model.score(u, items)
            hits += (s[:, 1:] > s[:, :1]).sum(1).lt(n).sum().item()
    model.train()
    return hits / len(val)


def main():
    torch.manual_seed(0)
    lists = torch.from_numpy(build())
    val, train = lists[:2000], lists[2000:]
    pop = torch.bincount(train.flatten(), minlength=N_TRACKS).float()
    seen = pop.nonzero().squeeze(1)

    model = Radio()
    # adagrad: rare tracks need the larger steps
    opt = torch.optim.Adagrad(model.parameters(), lr=0.05)
    hist = []
    for ep in range(EPOCHS):
        order = torch.randperm(len(train))
        # from the third epoch on: more candidates, so harder negatives
        cand = NEG if ep < 2 else 3 * NEG
        tot, div, n, t0 = 0., 0., 0, time.time()
        for i in range(0, len(order) - B + 1, B):
            b = train[order[i:i + B]]
            ctx, nxt = b[:, :LEN], b[:, LEN:]
            u = model.user(ctx)
            neg = seen[torch.randint(len(seen), (B, cand))]
            if cand > NEG:
                neg = hard_negatives(model, u, neg, NEG)
            pos_s = model.score(u, nxt)
            neg_s = model.score(u, neg)
            bpr = -F.logsigmoid(pos_s - neg_s).mean()
            # editors: neighbours in a list should stay close
            e = model.track(ctx)
            smooth = (1 - F.cosine_similarity(e[:, 1:], e[:, :-1], dim=-1)).mean()
            loss = bpr + 0.02 * smooth
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.small(), 5.0)
            opt.step()
            tot += bpr.item()
            div += smooth.item()
            n += 1
            if n % 100 == 0:
                print('ep %d  %d  bpr %.4f  smooth %.3f  %.1f it/s' % (ep, n, tot / n, div / n, n / (time.time() - t0)))
                sys.stdout.flush()
        hist.append({'epoch': ep, 'bpr': tot / n, 'hr10': hitrate(model, val)})
        print(hist[-1])
        with open(os.path.join(D, 'hist.json'), 'w') as f:
            json.dump(hist, f)


if __name__ == '__main__':
    main()
