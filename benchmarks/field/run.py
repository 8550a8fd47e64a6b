#!/usr/bin/env python3
"""Trainings that nobody here wrote, unmodified: are they seen, measured right, left as they are, and is a fault named?

    python benchmarks/field/run.py --list
    python benchmarks/field/run.py                                        # programs of packages: about 30 minutes
    python benchmarks/field/run.py --only nnU-Net TRL                     # names or parts of them
    python benchmarks/field/run.py --sources ~/src --output docs/measurements/field.md

Packages go into an environment of the benchmark's own (.bench-venv), on top of the torch that is installed already.
Scripts of repositories are taken from folders below --sources that have the repository's name, such as nanoGPT: a clone
from GitHub, or a bare git directory. Without it they are left out. Data and models are made here.

Each outcome is written to --results at once. What is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "shared")]

from packages import prepare  # noqa: E402
from page import judged, page  # noqa: E402
from programs import PROGRAMS, Places, Program  # noqa: E402
from trying import Outcome, attempt  # noqa: E402


def main() -> int:
    """Run what is missing, print what was found."""
    options = _options()
    chosen = [one for one in PROGRAMS if not options.only or any(part in one.name for part in options.only)]
    if not chosen:
        print(f"no program's name holds {' or '.join(options.only)}; --list shows them", file=sys.stderr)
        return 2
    if options.list:
        for program in chosen:
            print(f"{program.name:30} {program.kind:26} {program.plant}")
        return 0
    results = _read(options.results)
    missing = [program for program in chosen if program.name not in results]
    if missing:
        failures = prepare(options.environment, [package for program in missing for package in program.packages])
        data = options.folder / "data"
        if not data.exists():
            _make_data(options.environment, data)
        places = Places(options.environment / "bin", data)
        with ThreadPoolExecutor(options.jobs) as pool:
            waiting = [pool.submit(_one, program, places, failures, options) for program in missing]
            for program, future in zip(missing, waiting, strict=True):
                results[program.name] = future.result()
                _append(options.results, results[program.name])
                print(f"{program.name:30} {'; '.join(judged(program, results[program.name])) or 'ok'}", flush=True)
    found = [(program, results[program.name]) for program in chosen]
    if options.output:
        options.output.write_text(page(found, options.budget))
    return 0


def _one(program: Program, places: Places, failures: dict[str, str], options: argparse.Namespace) -> Outcome:
    lacking = [failures[package] for package in program.packages if package in failures]
    if lacking:
        return Outcome(program.name, why=lacking[0])
    source = None
    if program.repository:
        source = options.folder / "sources" / program.name.replace("/", "-").replace(" ", "-")
        why = _source(program, options.sources, source)
        if why:
            return Outcome(program.name, why=why)
    folder = options.folder / "runs" / program.name.replace("/", "-").replace(" ", "-")
    return attempt(program, places, source, folder, options.budget)


def _source(program: Program, sources: Path | None, target: Path) -> str | None:
    """Lay down the files of a repository; returns why that cannot be done."""
    if target.exists():
        return None
    name = str(program.repository).rpartition("/")[2]
    place = sources / name if sources else None
    if place is None or not place.is_dir():
        return f"no folder {name} below --sources; clone {program.repository} there"
    partial = target.with_name(target.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    git = subprocess.run(["git", "-C", str(place), "archive", "HEAD", *program.paths], capture_output=True, check=False)
    if git.returncode:
        return f"git archive in {place} failed: {git.stderr.decode(errors='replace').strip()[-200:]}"
    subprocess.run(["tar", "-x", "-C", str(partial)], input=git.stdout, check=True)
    partial.rename(target)
    return None


def _make_data(environment: Path, data: Path) -> None:
    """In the environment of the programs: it has the libraries that write their formats."""
    script = (
        "import pathlib, sys; sys.path.insert(0, sys.argv[1]); "
        "import programs; programs.make_material(pathlib.Path(sys.argv[2]))"
    )
    subprocess.run([str(environment / "bin" / "python"), "-c", script, str(HERE), str(data)], check=True)
    scans = {
        "nnUNet_raw": data / "scans",
        "nnUNet_preprocessed": data / "preprocessed",
        "nnUNet_results": data / "none",
    }
    plan = environment / "bin" / "nnUNetv2_plan_and_preprocess"
    if plan.exists():
        variables = [f"{name}={place}" for name, place in scans.items()]
        subprocess.run(
            ["env", *variables, str(plan), "-d", "1", "-c", "2d", "-np", "1", "-npfp", "1"],
            check=True,
            stdout=subprocess.DEVNULL,
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the programs and what is planted")
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="programs whose names hold one of these")
    parser.add_argument("--sources", type=Path, metavar="DIR", help="folder of clones, one for each repository")
    parser.add_argument(
        "--budget", type=float, default=60.0, metavar="S", help="of flatout fix; 0: without (default: 60)"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs at once (default: 1)")
    parser.add_argument("--environment", type=Path, default=ROOT / ".bench-venv", help="the programs' environment")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "field", help="for data and runs")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "field" / "results.jsonl", metavar="FILE")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the page of results")
    return parser.parse_args()


def _read(path: Path) -> dict[str, Outcome]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {row["name"]: Outcome(**row) for row in rows}


def _append(path: Path, outcome: Outcome) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(outcome.to_dict()) + "\n")


if __name__ == "__main__":
    sys.exit(main())
