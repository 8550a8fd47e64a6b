"""Routing of call-centre transcripts to the right team, with a small BERT trained from scratch."""
import json
import random
import tempfile
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.loggers import CSVLogger
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy, MulticlassConfusionMatrix
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
from transformers import get_linear_schedule_with_warmup

ROOT = Path(tempfile.gettempdir()) / "support_calls"
TEAMS = {
    "billing": "invoice charge refund payment card bank amount statement debit fee",
    "network": "router signal outage connection speed fibre modem wifi tower coverage",
    "contract": "cancel renewal terms notice upgrade tariff plan signed period transfer",
    "device": "screen battery charger repair warranty handset camera button broken case",
    "account": "password login address email locked username reset verify profile code",
}
SMALLTALK = (
    "hello good morning thanks for calling how can i help you yes no okay right well so i was wondering about the "
    "one moment please let me check that for you sorry to hear it happened last week again and then my wife said "
    "could you tell me what we can do now it is still the same since monday alright great have a nice day bye"
).split()
MAX_LENGTH = 256


def make_call(rng, team):
    topic = TEAMS[team].split()
    other = TEAMS[rng.choice(list(TEAMS))].split()
    turns = []
    for turn in range(max(2, int(rng.lognormvariate(1.6, 0.7)))):
        words = []
        for _ in range(rng.randint(5, 22)):
            p = rng.random()
            words.append(rng.choice(topic) if p < 0.06 else rng.choice(other) if p < 0.09 else rng.choice(SMALLTALK))
        turns.append({"speaker": "agent" if turn % 2 == 0 else "customer", "text": " ".join(words)})
    return turns


def prepare(count=12000, seed=3):
    rng = random.Random(seed)
    names = list(TEAMS)
    lines = []
    for i in range(count):
        team = rng.choice(names)
        lines.append(json.dumps({"call_id": i, "team": team, "turns": make_call(rng, team)}))
    cut, cut2 = int(count * 0.9), int(count * 0.95)
    for split, part in [("train", lines[:cut]), ("val", lines[cut:cut2]), ("test", lines[cut2:])]:
        (ROOT / f"{split}.jsonl").write_text("\n".join(part))


def read_calls(split):
    calls = []
    for line in (ROOT / f"{split}.jsonl").read_text().splitlines():
        call = json.loads(line)
        text = " ".join(f"[{turn['speaker']}] {turn['text']}" for turn in call["turns"])
        calls.append((text, list(TEAMS).index(call["team"])))
    return calls


def build_tokenizer(texts):
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[agent]", "[customer]"]
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=4000, special_tokens=special))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


class CallDataset(Dataset):
    def __init__(self, calls):
        self.calls = calls

    def __len__(self):
        return len(self.calls)

    def __getitem__(self, i):
        return self.calls[i]


class CallData(pl.LightningDataModule):
    def __init__(self, batch_size=16):
        super().__init__()
        self.batch_size = batch_size

    def prepare_data(self):
        ROOT.mkdir(parents=True, exist_ok=True)
        if not (ROOT / "test.jsonl").exists():
            prepare()

    def setup(self, stage=None):
        self.splits = {split: CallDataset(read_calls(split)) for split in ("train", "val", "test")}
        self.tokenizer = build_tokenizer(text for text, _ in self.splits["train"].calls)

    def collate(self, calls):
        texts, labels = zip(*calls)
        batch = self.tokenizer(
            list(texts),
            padding="max_length",
            truncation=True,
            max_length=MAX_LENGTH,
            return_tensors="pt",
        )
        return {
            "input_ids": batch["input_ids"],
            "attention_mask": batch["attention_mask"],
            "labels": torch.tensor(labels),
        }

    def loader(self, split):
        return DataLoader(
            self.splits[split], batch_size=self.batch_size, shuffle=split == "train", collate_fn=self.collate
        )

    def train_dataloader(self):
        return self.loader("train")

    def val_dataloader(self):
        return self.loader("val")

    def test_dataloader(self):
        return self.loader("test")


class CallRouter(pl.LightningModule):
    def __init__(self, hidden=128, layers=2, lr=3e-4):
        super().__init__()
        self.save_hyperparameters()
        config = BertConfig(
            vocab_size=4000,
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=4 * hidden,
            max_position_embeddings=MAX_LENGTH,
            num_labels=len(TEAMS),
        )
        self.model = BertForSequenceClassification(config)
        self.train_acc = MulticlassAccuracy(len(TEAMS))
        self.val_acc = MulticlassAccuracy(len(TEAMS))
        self.confusion = MulticlassConfusionMatrix(len(TEAMS))

    def forward(self, batch):
        return self.model(**batch)

    def training_step(self, batch, batch_idx):
        out = self(batch)
        self.train_acc(out.logits, batch["labels"])
        self.log("train_loss", out.loss, prog_bar=True)
        self.log("train_acc", self.train_acc, prog_bar=True)
        return out.loss

    def validation_step(self, batch, batch_idx):
        out = self(batch)
        self.val_acc(out.logits, batch["labels"])
        self.log("val_loss", out.loss, prog_bar=True)
        self.log("val_acc", self.val_acc, prog_bar=True)

    def test_step(self, batch, batch_idx):
        self.confusion.update(self(batch).logits, batch["labels"])

    def on_test_epoch_end(self):
        print(self.confusion.compute())

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        steps = self.trainer.estimated_stepping_batches
        scheduler = get_linear_schedule_with_warmup(optimizer, int(0.1 * steps), int(steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


if __name__ == "__main__":
    pl.seed_everything(11)
    data = CallData()
    model = CallRouter()
    trainer = pl.Trainer(
        max_epochs=12,
        accelerator="cpu",
        gradient_clip_val=1.0,
        logger=CSVLogger(ROOT / "logs"),
        callbacks=[ModelCheckpoint(monitor="val_loss"), EarlyStopping("val_loss", patience=4)],
    )
    trainer.fit(model, data)
    trainer.test(model, data)
