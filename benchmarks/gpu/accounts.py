"""The probe on a GPU against known kernels, and what it costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from running import Bench, Failed, found_result
from section import Row, Section

PHASES = ("forward", "backward", "optimizer")
# name -> milliseconds of the forward, backward and optimizer kernels, and of the host after each step
CASES = {
    "the device is behind": (10, 20, 5, 0),
    "short kernels, the device is behind": (1, 2, 0.5, 0),
    "the host is behind": (2, 4, 1, 25),
    "no kernel to speak of": (0, 0, 0, 5),
}
WITHIN = 0.05
MOST_COST = 0.01


def _accounts(bench: Bench) -> dict[str, Callable[[], Row]]:
    return {name: lambda case=case: _account(bench, case) for name, case in CASES.items()}


def _account(bench: Bench, case: tuple[float, ...]) -> Row:
    steps = 20 if bench.dry else 120
    # On the fake GPU, operations beside the known kernels take as little as on a real one.
    report, said = bench.profile(bench.script("known_kernels.py", *case, steps), FAKE_GPU_OP_US="5")
    truth = found_result(said)
    ledger = report["ledger"]
    taken = {account["id"]: account["seconds"] for account in ledger["accounts"]}
    count = max(ledger["steps"]["count"], 1)
    cells, errors = [], []
    for phase in PHASES:
        ours = 1000 * taken.get(phase, 0.0) / count
        cells.append(f"{truth[phase]:.2f} / {ours:.2f}")
        if truth[phase]:
            errors.append(abs(ours - truth[phase]) / truth["step"])
    worst = max(errors, default=0.0)
    cells += [f"{truth['step']:.2f} / {1000 * ledger['window_s'] / count:.2f}"]
    # Without kernels the phases take what the host takes for them; only the whole is known.
    whole = abs(1000 * ledger["window_s"] / count / truth["step"] - 1)
    cells.append(f"{100 * max(worst, whole):.1f}%")
    return Row(cells, max(worst, whole) <= WITHIN)


def _costs(bench: Bench) -> dict[str, Callable[[], Row]]:
    # Steps for some seconds: in the first one the probe meets each line of code for the first time.
    sizes = {"short steps": (32, 32, 32, 2000), "longer steps": (256, 64, 48, 800)}
    if bench.dry:
        sizes = {"tiny": (32, 4, 8, 10)}
    return {name: lambda size=size: _cost(bench, size) for name, size in sizes.items()}


def _cost(bench: Bench, size: tuple[int, int, int, int]) -> Row:
    batch_size, width, side, steps = size
    rounds = 1 if bench.dry else 3
    command = bench.script(
        "ordinary.py", "--steps", steps, "--batch-size", batch_size, "--width", width, "--size", side
    )
    bare, profiled = [], []
    for _ in range(rounds):
        bare.append(bench.result(command)["step_ms"])
        profiled.append(found_result(bench.profile(command)[1])["step_ms"])
    if not bare:
        raise Failed("no round")
    added = statistics.median(ours / plain - 1 for ours, plain in zip(profiled, bare, strict=True))
    cells = [f"{statistics.median(bare):.3f}", f"{statistics.median(profiled):.3f}", f"{100 * added:+.2f}%"]
    return Row(cells, added <= MOST_COST)


ACCOUNTS = Section(
    "accounts",
    "Device time of each phase, against kernels of a known length (ms a step: measured alone / in the ledger)",
    f"each within {100 * WITHIN:.0f}% of a step",
    3,
    (*PHASES, "step", "largest error"),
    _accounts,
)
COST = Section(
    "cost",
    "What the probe costs (ms a step)",
    f"at most {100 * MOST_COST:.0f}%",
    4,
    ("bare", "profiled", "added"),
    _costs,
)
