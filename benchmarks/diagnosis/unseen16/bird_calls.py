"""Tell twelve bird species apart by short field recordings, with log-mel features and a small transformer encoder."""
import csv
import os
import tempfile

import numpy as np
import torch
from datasets import Dataset, load_from_disk
from scipy.io import wavfile
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.audio_utils import mel_filter_bank, spectrogram, window_function
from transformers.modeling_outputs import SequenceClassifierOutput

ROOT = os.path.join(tempfile.gettempdir(), "bird_calls")
RATE = 16000
SECONDS = 2.0
MELS = 64
SPECIES = 12
RECORDINGS = 1200

FILTERS = mel_filter_bank(
    num_frequency_bins=257, num_mel_filters=MELS, min_frequency=300, max_frequency=7800, sampling_rate=RATE
)
WINDOW = window_function(400, "hann")


def sing(rng, species):
    """A phrase of a few chirps; pitch, sweep and rhythm depend on the species."""
    n = int(RATE * SECONDS)
    signal = rng.normal(0, 0.02, n)
    base, sweep = 1200 + 380 * species, 900 * np.cos(species * 1.7)
    gap = 0.12 + 0.02 * (species % 5)
    start = rng.uniform(0, 0.3)
    while start < SECONDS - 0.15:
        m = int(RATE * rng.uniform(0.05, 0.1))
        t = np.arange(m) / RATE
        f = base * rng.normal(1, 0.04) + sweep * t * 10
        chirp = np.sin(2 * np.pi * np.cumsum(f * np.ones(m)) / RATE) * np.hanning(m)
        at = int(start * RATE)
        signal[at:at + m] += rng.uniform(0.1, 0.5) * chirp[: n - at]
        start += gap * rng.uniform(0.8, 1.3)
    return signal


def log_mel(path):
    rate, wave = wavfile.read(path)
    assert rate == RATE
    wave = wave.astype(np.float32) / 32768
    mel = spectrogram(
        wave, WINDOW, frame_length=400, hop_length=160, fft_length=512, power=2.0, mel_filters=FILTERS, log_mel="log10"
    )
    return ((mel.T + 4) / 4).astype(np.float32)


def make_recordings():
    if os.path.exists(os.path.join(ROOT, "features", "dataset_info.json")):
        return
    os.makedirs(os.path.join(ROOT, "wav"), exist_ok=True)
    rng = np.random.default_rng(5)
    rows = []
    for number in range(RECORDINGS):
        species = int(rng.integers(SPECIES))
        name = f"rec_{number:05d}.wav"
        wave = np.clip(sing(rng, species), -1, 1)
        wavfile.write(os.path.join(ROOT, "wav", name), RATE, (wave * 32767).astype(np.int16))
        rows.append({"file": name, "species": species})
    with open(os.path.join(ROOT, "recordings.csv"), "w", newline="") as f:
        writer = csv.DictWriter(f, fieldnames=["file", "species"])
        writer.writeheader()
        writer.writerows(rows)

    recordings = Dataset.from_csv(os.path.join(ROOT, "recordings.csv"), cache_dir=os.path.join(ROOT, "cache"))

    def extract(row):
        return {"input_features": log_mel(os.path.join(ROOT, "wav", row["file"])), "labels": row["species"]}

    features = recordings.map(extract, remove_columns=["file", "species"])
    features.save_to_disk(os.path.join(ROOT, "features"))


class CallEncoder(nn.Module):
    def __init__(self, width=96, layers=2, heads=4, dropout=0.1):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(MELS, width, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, stride=4, padding=2),
            nn.GELU(),
        )
        self.position = nn.Parameter(torch.zeros(1, 64, width))
        layer = nn.TransformerEncoderLayer(width, heads, 3 * width, dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, SPECIES))

    def forward(self, input_features, labels=None):
        x = self.front(input_features.transpose(1, 2)).transpose(1, 2)
        x = self.encoder(x + self.position[:, : x.shape[1]])
        logits = self.head(x.mean(1))
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return SequenceClassifierOutput(loss=loss, logits=logits)


class SpecMaskCollator:
    """Stacks the spectrograms and blanks one band of frequencies and one stretch of time in each."""

    def __init__(self, band=8, stretch=20):
        self.band = band
        self.stretch = stretch

    def __call__(self, examples):
        features = torch.stack([torch.as_tensor(e["input_features"]) for e in examples])
        labels = torch.tensor([int(e["labels"]) for e in examples])
        frames = features.shape[1]
        for k in range(len(features)):
            low = torch.randint(0, MELS - self.band, (1,)).item()
            begin = torch.randint(0, frames - self.stretch, (1,)).item()
            features[k, :, low:low + self.band] = 0
            features[k, begin:begin + self.stretch] = 0
        return {"input_features": features, "labels": labels}


class EpochReport(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        print(f"epoch {state.epoch:.0f}: accuracy {metrics['eval_accuracy']:.3f}")


def compute_metrics(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    set_seed(1)
    make_recordings()
    features = load_from_disk(os.path.join(ROOT, "features"))
    parts = features.train_test_split(test_size=0.1, seed=8)
    model = CallEncoder()
    arguments = TrainingArguments(
        output_dir=os.path.join(ROOT, "run"),
        num_train_epochs=150,
        per_device_train_batch_size=16,
        per_device_eval_batch_size=32,
        learning_rate=1e-3,
        lr_scheduler_type="cosine",
        warmup_steps=50,
        logging_steps=50,
        eval_strategy="epoch",
        save_strategy="no",
        label_names=["labels"],
        report_to=[],
        use_cpu=True,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        data_collator=SpecMaskCollator(),
        compute_metrics=compute_metrics,
        callbacks=[EpochReport()],
    )
    trainer.train()
    torch.save(model.state_dict(), os.path.join(ROOT, "model.pt"))


if __name__ == "__main__":
    main()
