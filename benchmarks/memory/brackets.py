#!/usr/bin/env python3
"""How well the memory of a step is predicted, on the batch sizes at which timm's benchmark ran out of memory.

timm's table of training throughput on an RTX 3090 (24 GB) names the batch size of each row: the largest of 512, 384,
256, 192, 128, ... that did not end out of memory. So each row says that this batch fits, and that the next larger one
does not. Rows at 512, the first that is tried, say the former only.

    python benchmarks/memory/brackets.py --timm CHECKOUT --output docs/measurements/memory.md

CHECKOUT: a clone of github.com/huggingface/pytorch-image-models; nothing of it is kept here.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]

from checkout import Checkout  # noqa: E402
from conditions import head  # noqa: E402

from flatout.predict.step_memory import fit_steps  # noqa: E402

TABLE = "results/benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv"
USABLE_BYTES = 25_447_170_048  # of an RTX 3090, as PyTorch reports its memory
FIRST = 512
TRACKED = (8, 16)
GOAL_SIDES = 0.9


@dataclass(frozen=True)
class Row:
    """A row of the table with its prediction.

    Attributes:
        fits: the batch size that ran.
        fails: the next larger one, which did not; None: none was tried.
        fits_bytes: predicted for the former.
        fails_bytes: for the latter.
        largest: predicted largest batch size.
    """

    model: str
    edge: int
    fits: int
    fails: int | None
    fits_bytes: int
    fails_bytes: int | None
    largest: int

    @property
    def is_low_right(self) -> bool:
        """The prediction says that the batch that ran fits."""
        return self.fits_bytes <= USABLE_BYTES

    @property
    def is_high_right(self) -> bool:
        """It says that the one that did not run does not."""
        return self.fails_bytes is None or self.fails_bytes > USABLE_BYTES

    @property
    def is_far_too_low(self) -> bool:
        """It says that even the next but one fits: under-estimated by more than a rung."""
        return self.fails is not None and self.largest >= rung_above(self.fails)


def decayed(batch_size: int) -> int:
    """The next batch size that timm tries: between powers of two, one step in the middle."""
    base = 2 ** int(math.log(batch_size - 1) / math.log(2))
    step = max(base // 2, 1)
    return int(base + ((batch_size - base - 1) // step) * step)


def rung_above(batch_size: int) -> int:
    """The batch size of which timm's next smaller one is this."""
    return next(one for one in range(batch_size + 1, 4 * batch_size + 8) if decayed(one) == batch_size and is_rung(one))


def is_rung(batch_size: int) -> bool:
    """A power of two, or one and a half times one."""
    return any(batch_size == 2**power or batch_size == 3 * 2**power for power in range(16))


def main() -> None:
    """Predict the rows, and print or write the page."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--timm", type=Path, required=True, help="a clone of pytorch-image-models")
    options.add_argument("--every", type=int, default=10, help="row of the table")
    options.add_argument("--kept", type=Path, default=Path("brackets.jsonl"), help="rows done, to go on from")
    options.add_argument("--only-kept", action="store_true", help="write the page of the rows done so far")
    options.add_argument("--output", type=Path)
    chosen = options.parse_args()
    checkout = Checkout(chosen.timm)
    table = list(csv.DictReader(io.StringIO(checkout.text(TABLE))))[:: chosen.every]
    failed: dict[str, str] = {}
    rows = [Row(**json.loads(line)) for line in chosen.kept.read_text().splitlines()] if chosen.kept.exists() else []
    done = {row.model for row in rows}
    for entry in [] if chosen.only_kept else table:
        if entry["model"] in done:
            continue
        began = time.monotonic()
        try:
            row = predicted(entry)
        except Exception as error:  # of timm's, which no longer has or makes the model
            failed[entry["model"]] = f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
            continue
        rows.append(row)
        with chosen.kept.open("a") as file:
            print(json.dumps(asdict(row)), file=file)
        print(f"{row.model}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    text = page(rows, failed, len(table), checkout.commit())
    if chosen.output:
        chosen.output.write_text(text)
    print(text)


def predicted(entry: dict[str, str]) -> Row:
    """Track two small steps of the row's model, and predict its batch sizes."""
    import timm
    from fake_step import tracked_step
    from timm.layers import set_fused_attn

    set_fused_attn(False)  # of the table's PyTorch 1.12 there was none
    edge, fits = int(entry["train_img_size"]), int(entry["train_batch_size"])
    model = timm.create_model(entry["model"], pretrained=False).train()
    line = fit_steps([tracked_step(model, size, edge) for size in TRACKED])
    fails = rung_above(fits) if fits < FIRST else None
    return Row(
        entry["model"],
        edge,
        fits,
        fails,
        line.at(fits),
        line.at(fails) if fails else None,
        line.largest(USABLE_BYTES),
    )


def page(rows: list[Row], failed: dict[str, str], wanted: int, commit: str) -> str:
    """The page of measurements."""
    bracketed = [row for row in rows if row.fails is not None]
    low, high = [row.is_low_right for row in rows], [row.is_high_right for row in bracketed]
    both = [row.is_low_right and row.is_high_right for row in bracketed]
    far = [row.model for row in bracketed if row.is_far_too_low]
    # The true need of the batch that failed is above the card's memory, that of the one that ran at most that.
    ratios = [row.largest / math.sqrt(row.fits * row.fails) for row in bracketed if row.fails]
    sys.argv[1:] = ["--timm", "CHECKOUT"]  # no path of this machine stands in a page
    lines = head(
        "How well the memory of a step is predicted", "benchmarks/memory/brackets.py", ("flatout", "torch", "timm"), {}
    )
    unreached = wanted - len(rows) - len(failed)
    left_out = (
        f"{len(failed)} models are not made by today's timm at the table's image size" if failed else "none left out"
    )
    if unreached:
        left_out = f"{unreached} were not reached or not made by today's timm, most of them the slowest of the table"
    below = _share([ratio < 1 for ratio in ratios])
    lines += [
        "",
        f"github.com/huggingface/pytorch-image-models at {commit} (Apache-2.0), `{TABLE}`:",
        "training under AMP with SGD on an RTX 3090, PyTorch 1.12. The largest batch size of 512, 384, 256, 192, 128,",
        "... that did not end out of memory is in each row, so that the next larger one is known not to fit.",
        "",
        f"- {len(rows)} of {wanted} rows at equal distances in the table; {left_out}.",
        f"- Steps of {TRACKED[0]} and {TRACKED[1]} images are tracked on tensors without content, by the tracker and",
        "  the formula of `flatout memory`; nothing ran on a GPU here. Attention is not fused, as in PyTorch 1.12.",
        f"- A card of {USABLE_BYTES / 2**30:.1f} GiB. Predictions hold 1 GiB for CUDA and its libraries, and 5% for",
        "  what the allocator cannot use.",
        "",
        "| | rows | right | goal |",
        "|---|---|---|---|",
        f"| the batch that ran is said to fit | {len(low)} | {_share(low)} | |",
        f"| the batch that ran out of memory is said not to fit | {len(high)} | {_share(high)} | |",
        f"| both | {len(both)} | {_share(both)} | at least 90%: {'met' if _mean(both) >= GOAL_SIDES else 'missed'} |",
        f"| under-estimated by more than a rung | {len(bracketed)} | {len(far)} | none: {'missed' if far else 'met'} |",
        "",
        "Predicted largest batch size beside the middle of the two that are known (geometric): median "
        f"{statistics.median(ratios):.2f}, {below} below 1, where the memory is over-estimated.",
        "",
        "| model | image | ran | did not | predicted largest | of the card, ran | did not | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row.largest / row.fits):
        fails_share = f"{row.fails_bytes / USABLE_BYTES:.0%}" if row.fails_bytes else ""
        right = "" if row.is_low_right and row.is_high_right else "too much" if not row.is_low_right else "too little"
        lines.append(
            f"| {row.model} | {row.edge} | {row.fits} | {row.fails or ''} | {row.largest:,} |"
            f" {row.fits_bytes / USABLE_BYTES:.0%} | {fails_share} | {right} |"
        )
    return "\n".join(lines) + "\n"


def _mean(values: list[bool]) -> float:
    return sum(values) / len(values) if values else 0.0


def _share(values: list[bool]) -> str:
    return f"{sum(values)} of {len(values)} ({_mean(values):.0%})" if values else "none"


if __name__ == "__main__":
    main()
