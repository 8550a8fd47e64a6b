"""The search for a batch size on a machine whose speed and memory follow from the size."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from flatout.errors import CommandError, Interrupted, UsageError
from flatout.predict.learning_rate import scaling
from flatout.report.batch_size import lines, to_dict
from flatout.runner import Bounds
from flatout.trials import batch_finding
from flatout.trials.batch_finding import Finding, SizeOptions
from flatout.trials.batch_sizes import BatchSizes
from flatout.trials.isolation import NAMESPACE, Isolation
from flatout.trials.locations import find_locations
from flatout.trials.outcome import FAILED, OK, OUT_OF_MEMORY, REFUSED, TrialRun
from flatout.trials.progress import ProgressLog
from flatout.trials.trial_run import TrialSetup
from flatout.trials.try_result import Memory
from tests.trials.made_runs import speed

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schema/batch-size.schema.json").read_text("utf-8"))
COMMAND = ("python", "train.py")
MIB = 1 << 20


class Machine:
    """Runs no command. A step takes ``fixed_s`` and ``each_s`` a sample; memory is 100 MiB and 1 MiB a sample."""

    def __init__(self, fixed_s: float, each_s: float, own: int = 16, fits: int = 1 << 30) -> None:
        self.fixed_s, self.each_s, self.own, self.fits = fixed_s, each_s, own, fits
        self.calls: list[int] = []
        self.now_s, self.samples, self.special = 0.0, 100_000, dict[int, Any]()

    def run(self, setup: TrialSetup, settings: Mapping[str, Any], deadline_s: float = 0.0) -> TrialRun:
        number = settings.get("batch_size", self.own)
        self.calls.append(number)
        self.now_s += 10.0
        made = self.special.get(number)
        if isinstance(made, BaseException):
            raise made
        if made is not None:
            return made  # type: ignore[no-any-return]
        if number > self.fits:
            return TrialRun(OUT_OF_MEMORY, "CUDA out of memory", 5.0)
        rate = number / (self.fixed_s + self.each_s * number) * (1 + 0.002 * (len(self.calls) % 3))
        run: Any = SimpleNamespace(size=number)
        return TrialRun(OK, "", 5.0, replace(speed(rate), batch=float(number)), (), run)

    def view(self, run: Any) -> Any:
        settings = SimpleNamespace(batch_size=run.size, dataset_len=self.samples, drop_last=False)
        return SimpleNamespace(
            loading=SimpleNamespace(settings=settings),
            ranks=None,
            usage=SimpleNamespace(gpu_memory_total_bytes=None),
            process=SimpleNamespace(optimizer="AdamW"),
        )


@pytest.fixture(autouse=True)
def _memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_finding, "peak_memory", lambda run: Memory((100 + run.size) * MIB, None))
    monkeypatch.setattr(batch_finding, "host_memory", lambda: (4096 * MIB, 4096 * MIB))


Found = Callable[..., BatchSizes]


@pytest.fixture
def found(tmp_path: Path) -> Found:
    def find(machine: Machine, words: tuple[str, ...] = COMMAND, **options: Any) -> BatchSizes:
        setup = TrialSetup(
            words,
            tmp_path,
            tmp_path / "runs",
            Bounds(),
            Isolation(NAMESPACE),
            locations=find_locations(words, None, ()),
        )
        limits = SizeOptions(**{"budget_s": 2000.0, **options})
        clock = {"clock": lambda: machine.now_s, "view": machine.view, "run_once": machine.run}
        got = Finding(setup, limits, ProgressLog(True), **clock).run()  # type: ignore[arg-type]
        # Whatever the outcome, it reads well.
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(to_dict(got))))
        assert max(map(len, lines(got))) <= 80, "\n".join(lines(got))
        assert all(one.runs or one.why for one in got.sizes)
        return got

    return find


def said(got: BatchSizes) -> str:
    return " ".join(" ".join(lines(got)).split())


def test_the_knee_is_the_smallest_size_within_5_percent_of_the_best(found: Found) -> None:
    # Samples/s at b are 95% of the best at about b = 19 x the size at which the fixed cost equals the rest.
    got = found(Machine(fixed_s=0.02, each_s=0.001))
    measured = {one.size: one.rate for one in got.sizes if one.runs}
    assert got.knee.rate >= 0.95 * max(measured.values())
    assert all(rate < 0.95 * max(measured.values()) for size, rate in measured.items() if size < got.knee.size)
    assert got.own == 16 and got.gain is not None and got.gain.low > 1.5
    assert got.settings["batch_size"] == got.knee.size
    assert f"flatout apply --set batch_size={got.knee.size} --set lr_factor=" in said(got)
    assert "class optimisation" in said(got) and "square root" in said(got) and "Malladi" in said(got)


def test_out_of_memory_is_an_outcome_and_what_fits_is_measured(found: Found) -> None:
    machine = Machine(fixed_s=1.0, each_s=0.0001, fits=100)
    got = found(machine)
    assert got.knee.size in (80, 88, 96) and got.larger_gain
    assert got.found(128) is not None and "batch size 128 ran out of memory" in got.limit
    assert "samples/s still grew" in said(got)


def test_host_memory_that_would_not_do_is_predicted_and_not_tried(found: Found) -> None:
    machine = Machine(fixed_s=1.0, each_s=0.0001, own=512)
    got = found(machine)
    assert 4096 not in machine.calls and "4.1 GiB of host memory predicted, 3.8 GiB may be used" in got.limit


def test_a_size_that_is_larger_than_needed_is_halved(found: Found) -> None:
    got = found(Machine(fixed_s=0.001, each_s=0.001, own=256))
    assert got.knee.size < 64 and "is enough" in lines(got)[0]
    assert 0.9 < got.gain.factor < 1.1  # type: ignore[union-attr]


def test_one_sample_more_or_less_is_no_reason_to_change(found: Found) -> None:
    got = found(Machine(fixed_s=0.0, each_s=0.001), least=16)
    assert got.knee.size == got.own == 16 and not got.settings
    assert "which the command has, is enough" in said(got) and "flatout apply" not in said(got)


def test_short_data_the_most_allowed_and_the_budget_end_the_search(found: Found) -> None:
    machine = Machine(fixed_s=1.0, each_s=0.0)
    machine.samples = 16 * 30
    assert "fewer than 10 steps" in found(machine).limit
    assert found(Machine(fixed_s=1.0, each_s=0.0), most=40).knee.size == 40
    got = found(Machine(fixed_s=1.0, each_s=0.0), budget_s=45.0)
    assert "budget of 45.0 s is used up" in got.ended
    with pytest.raises(UsageError, match="too small for two batch sizes"):
        found(Machine(fixed_s=1.0, each_s=0.0), budget_s=12.0)


def test_what_breaks_the_training_is_shown(found: Found) -> None:
    machine = Machine(fixed_s=1.0, each_s=0.0)
    machine.special[32] = TrialRun(FAILED, "the command failed: RuntimeError: shape", 3.0)
    got = found(machine, least=16)
    assert "Only batch size 16 was measured" in said(got) and "RuntimeError: shape" in said(got)


def test_a_size_that_cannot_be_set_says_what_to_do(found: Found) -> None:
    machine = Machine(fixed_s=1.0, each_s=0.0)
    machine.special[32] = TrialRun(REFUSED, "batch_size: batches are made by Buckets", 3.0)
    with pytest.raises(CommandError, match=r"made by Buckets\. If the command has an option .* --batch-size 16"):
        found(machine)


def test_an_option_of_the_command_is_used_to_keep_the_size(found: Found) -> None:
    words = (*COMMAND, "--batch-size", "16", "--lr", "0.1")
    got = found(Machine(fixed_s=0.02, each_s=0.001), words, rule="linear")
    assert f"python train.py --batch-size {got.knee.size} --lr {0.1 * got.knee.size / 16}" in said(got)
    assert "as you chose: Goyal" in said(got)


def test_an_interrupted_search_tells_what_it_has(found: Found) -> None:
    machine = Machine(fixed_s=1.0, each_s=0.0)
    machine.special[64] = Interrupted()
    got = found(machine)
    assert got.interrupted is not None and got.ended.startswith("Ended early") and got.knee.size == 32


def test_the_rule_follows_the_optimizer() -> None:
    assert scaling(4.0, "SGD").factor == 4.0
    assert scaling(4.0, "AdamW").factor == 2.0
    assert "was not seen" in scaling(4.0, None).because
