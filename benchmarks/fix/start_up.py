#!/usr/bin/env python3
"""``fix`` on a training that takes long to start: trials inside one process beside trials that start it anew.

The script sleeps before it trains, as imports and the listing of files do, and has several faults at once, each of
which costs a part of a step: one worker for a slow store, a checkpoint written by the loop, metrics that wait for the
disk, a collection of garbage in each step, and anomaly detection left on.

    python benchmarks/fix/start_up.py --steps 0.05 0.5 3 --budget 10m --output docs/measurements/fix-start-up.md

Each answer is written to --results at once; what is there is not run again. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "shared"))

from conditions import head  # noqa: E402

SCRIPT = """
import gc, os, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEP = {step}

class Store(Dataset):
    def __len__(self):
        return 100000
    def __getitem__(self, index):
        time.sleep(1.5 * STEP / 8)  # a request to a slow store
        return torch.randn(256), index % 3

def main():
    time.sleep({start})
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 3))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    torch.autograd.set_detect_anomaly(True)
    loader = DataLoader(Store(), 8, shuffle=True, num_workers=1)
    metrics = open("metrics.csv", "w")
    notes = [[number] for number in range(int(1e6 * STEP))]
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        time.sleep(0.3 * STEP)  # the device computes
        loss.backward()
        optimizer.step()
        gc.collect()
        for _ in range(max(int(100 * STEP), 1)):
            metrics.write("%d,%f\\n" % (step, loss.item()))
            metrics.flush()
            os.fsync(metrics.fileno())
        torch.save(dict(model=model.state_dict(), more=torch.zeros(int(24e6 * STEP))), "last.pt")

if __name__ == "__main__":
    main()
"""
LIVE, ANEW = "--live", "--no-live"


def main() -> None:
    """Run ``fix`` both ways on each length of a step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--start", type=float, default=30.0, help="seconds of the script's start-up (default: 30)")
    parser.add_argument("--steps", type=float, nargs="+", default=[0.05, 0.5, 3.0], help="seconds of a step")
    parser.add_argument("--budget", default="10m", help="of each fix (default: 10m)")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "fix" / "start-up.jsonl", metavar="FILE")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write a Markdown page")
    options = parser.parse_args()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    found = _read(options.results)
    for step in options.steps:
        for mode in (LIVE, ANEW):
            if (step, mode) in found:
                continue
            row = found[step, mode] = _fix(step, mode, options)
            with options.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, file=sys.stderr, flush=True)
    text = page(found, options)
    if options.output:
        options.output.write_text(text)
    print(text)


def _read(path: Path) -> dict[tuple[float, str], dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(row["step"], row["mode"]): row for row in rows}


def _fix(step: float, mode: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT.format(step=step, start=options.start))
        words = ["fix", "--budget", options.budget, mode, "--json", "--quiet", "--", sys.executable, script.name]
        begin_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "flatout", *words], cwd=folder, capture_output=True, text=True, check=False
        )
        wall_s = time.monotonic() - begin_s
    if not done.stdout:
        return {"step": step, "mode": mode, "wall_s": wall_s, "failure": done.stderr.strip()[-300:]}
    fixed = json.loads(done.stdout)
    proof = fixed["proof"]
    return {
        "step": step,
        "mode": mode,
        "wall_s": wall_s,
        "tried": [trial["title"] for trial in fixed["tried"]],
        "kept": [trial["title"] for trial in fixed["kept"]],
        "proof": {name: proof[name] for name in ("speedup", "low", "high")} if proof else None,
        "settings": fixed["settings"],
    }


def page(found: dict[tuple[float, str], dict[str, Any]], options: argparse.Namespace) -> str:
    """Markdown."""
    lines = [
        *head("What fix does with a slow start", "benchmarks/fix/start_up.py", ("flatout", "torch"), {}),
        f"- The script starts for {options.start:.0f} s, then trains; the time of a step sets what its store, its "
        f"device and its faults take. `flatout fix --budget {options.budget}`, class identical, one run of each.",
        "- Live: a setting is switched inside one process. Anew: each run of a trial starts the training. The proof "
        "starts it anew in both.",
        "",
        "| step | trials | minutes | tried | proved | kept settings |",
        "|---|---|---|---|---|---|",
    ]
    for (step, mode), row in sorted(found.items()):
        name = "live" if mode == LIVE else "anew"
        if "failure" in row:
            lines.append(f"| {step:g} s | {name} | {row['wall_s'] / 60:.1f} | {row['failure']} | | |")
            continue
        proof = row["proof"]
        proved = f"{proof['speedup']:.2f}x ({proof['low']:.2f}-{proof['high']:.2f})" if proof else "nothing"
        settings = ", ".join(f"`{setting}={value}`" for setting, value in row["settings"].items())
        minutes, tried = f"{row['wall_s'] / 60:.1f}", len(row["tried"])
        lines.append(f"| {step:g} s | {name} | {minutes} | {tried} | {proved} | {settings or 'none'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
