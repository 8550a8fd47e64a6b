#!/usr/bin/env python3
"""How often the diagnosis is right: scripts with a planted fault, healthy ones, and what the rivals say of them.

    python benchmarks/diagnosis/run.py --list
    python benchmarks/diagnosis/run.py                            # flatout on all scripts, seed 1: 15 minutes
    python benchmarks/diagnosis/run.py --only hf_saves climate    # names or parts of them
    python benchmarks/diagnosis/run.py --set unseen               # scripts by people who had not seen the rules
    python benchmarks/diagnosis/run.py --seeds 11 12 13 --fixes --rivals --output docs/measurements/diagnosis.md

Each answer is written to --results at once. What is there is not run again: an ended run goes on where it was, and
another seed or a rival is added to it. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]

import material  # noqa: E402
from page import page  # noqa: E402
from prepared import prepared  # noqa: E402
from rivals import prepare  # noqa: E402
from scenarios import ORIGINAL, SETS, TUNED, Scenario, load  # noqa: E402
from scoring import Key, read, summary, verdict_line  # noqa: E402
from tools import FLATOUT, TRACEML, TRAIN_DOCTOR, VERSIONS, Answer, ask  # noqa: E402

# Of the scripts in the sets `unseen` to `unseen20`, beside what flatout's own tests need.
PACKAGES = {"pandas": "3.1.1", "h5py": "3.16.0", "scikit-learn": "1.9.1"}


def main() -> int:
    """Run what is missing, print what was found."""
    options = _options()
    scenarios = [one for one in load(options.set) if not options.only or any(part in one.name for part in options.only)]
    if not scenarios:
        print(f"no script's name holds {' or '.join(options.only)}; --list shows them", file=sys.stderr)
        return 2
    if options.list:
        for scenario in scenarios:
            print(f"{scenario.name:26} {scenario.kind:13} {scenario.cause or 'healthy'}")
        return 0
    if options.threads:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)
    else:
        os.environ.pop("OMP_NUM_THREADS", None)
    results = read(options.results)
    wanted = list(_wanted(scenarios, options))
    missing = [key for key in wanted if key not in results]
    if missing:
        packages = (VERSIONS if options.rivals else {}) | ({} if options.set == TUNED else PACKAGES)
        environment = prepare(options.folder / "rivals", packages)
        for rival, because in environment.missing.items():
            print(f"without {rival}: {because}", file=sys.stderr)
            missing = [key for key in missing if key.tool != rival]
        sets = material.make(options.folder / "data")
        by_name = {scenario.name: scenario for scenario in scenarios}
        begin = time.monotonic()
        for number, key in enumerate(missing, 1):
            answer = _ask(key, by_name[key.script], environment.python, sets, options.seconds)
            results[key] = answer
            _append(options.results, key, answer)
            left_min = (time.monotonic() - begin) / number * (len(missing) - number) / 60
            line = verdict_line(by_name[key.script], key, answer)
            print(f"[{number}/{len(missing)}, {left_min:.0f} min left] {line}", file=sys.stderr, flush=True)
    asked = {key: results[key] for key in wanted if key in results}
    print(summary(scenarios, asked))
    if options.output:
        options.output.write_text(page(scenarios, asked, options.seconds, options.threads))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the scripts and what was planted")
    parser.add_argument("--set", choices=SETS, default=TUNED, help="(default: %(default)s)")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="scripts whose names hold one of these")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], metavar="N", help="(default: 1)")
    parser.add_argument("--fixes", action="store_true", help="apply the fixes, and measure what they give")
    parser.add_argument(
        "--rivals", action="store_true", help=f"ask {TRAIN_DOCTOR} and {TRACEML} too, with the first seed"
    )
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of training in a run (default: 10)")
    parser.add_argument(
        "--threads", type=int, default=1, metavar="N", help="OMP_NUM_THREADS of the trainings; 0: not set (default: 1)"
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "diagnosis", help="for data and rivals")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "diagnosis" / "results.jsonl", metavar="FILE")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the page of results")
    return parser.parse_args()


def _wanted(scenarios: list[Scenario], options: argparse.Namespace) -> Iterable[Key]:
    """What is to be asked: rivals and fixes go beside the original, so that a drift of the machine meets all."""
    for seed in options.seeds:
        for scenario in scenarios:
            for variant in scenario.variants() if options.fixes else [ORIGINAL]:
                yield Key(scenario.name, seed, variant, FLATOUT)
            if options.rivals and seed == options.seeds[0]:
                yield Key(scenario.name, seed, ORIGINAL, TRAIN_DOCTOR)
                if scenario.on_framework:  # the steps of a plain loop it sees only with code
                    yield Key(scenario.name, seed, ORIGINAL, TRACEML)


def _ask(key: Key, scenario: Scenario, python: str, sets: dict[str, str], seconds: float) -> Answer:
    with prepared(scenario, key.seed, key.variant, sets) as (command, work):
        return ask(key.tool, python, command, scenario.ranks, work, seconds)


def _append(path: Path, key: Key, answer: Answer) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps({"key": list(key), "answer": answer.to_dict()}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
