"""Observations of one file, folded into bounded facts as they come."""

from __future__ import annotations

import math

from flatout.logs.bars import Bars
from flatout.logs.facts import Device, EpochTime, FileFacts, Said, Series, Statement, Totals, Trouble, Usage
from flatout.logs.observations import Kind, Observation, Source
from flatout.logs.percentages import Percentages
from flatout.logs.quantities import LARGEST
from flatout.logs.redaction import redacted
from flatout.logs.step_lines import Steps

MAY_BE_NONE = ("workers", "prefetch", "global_step")  # settings that may be 0
MOST_STATEMENTS = 2000
MOST_POINTS = 256
MOST_TIMED = 4096
MOST_NAMES = 64  # values kept of a setting, names of metrics, devices
MOST_TROUBLES = 100
MOST_NOTES = 20
MOST_EPOCHS = 20_000


class Digest:
    """Takes the observations of a file; ``facts`` gives what they come to."""

    def __init__(self, file: str, format: str) -> None:
        self._facts = FileFacts(file, format)
        self._percentages = Percentages(self._facts.metrics)
        self._bars = Bars()
        self._steps: dict[float | None, Steps] = {}
        self._means = False
        self._epoch: float | None = None
        self._stride, self._timed = 1, 0
        self._adders = {
            Kind.PROGRESS: self._bars.add,
            Kind.STEP: self._step,
            Kind.EPOCH: self._add_epoch,
            Kind.METRICS: self._metrics,
            Kind.TOTALS: self._total,
            Kind.SETTING: self._setting,
            Kind.DEVICE: self._usage,
            Kind.HOST: self._usage,
            Kind.JOB: self._job,
            Kind.TROUBLE: self._trouble,
            Kind.STATEMENT: self._statement,
        }

    def add(self, one: Observation) -> None:
        """Take one."""
        total = sum(one.values.values())
        if not -LARGEST < total < LARGEST and one.kind is not Kind.METRICS:  # nothing was measured
            return
        facts = self._facts
        note = one.labels.get("note")
        if note and note not in facts.notes and len(facts.notes) < MOST_NOTES:
            facts.notes.append(note)
        if one.kind is Kind.NOTE:
            return
        facts.observations += 1
        if one.time_s is not None:
            begin = one.time_s - self._before(one)
            facts.from_s = begin if facts.from_s is None else min(facts.from_s, begin)
            facts.to_s = one.time_s if facts.to_s is None else max(facts.to_s, one.time_s)
            facts.zoned = facts.zoned or one.zoned
        self._adders[one.kind](one, Source(facts.file, one.line, one.text))

    def facts(self) -> FileFacts:
        """All together; passes come from the surest source: bars, then step lines, then lines about epochs."""
        facts = self._facts
        passes = self._bars.close()
        if passes:
            facts.validation_s = self._bars.validation_s
            facts.notes += self._bars.notes()
        stepped = [
            found for epoch, steps in self._steps.items() if (found := steps.epoch_time(epoch, self._means)) is not None
        ]
        for steps in self._steps.values():
            facts.notes += steps.notes()
        facts.epochs = (passes or stepped) + facts.epochs
        if self._bars.planned:
            value, source = self._bars.planned
            facts.settings.setdefault("epochs", []).insert(0, Said(value, source, "bar"))
        return facts

    def _before(self, one: Observation) -> float:
        """Seconds that the training had run when its first line about a whole epoch was written."""
        values = one.values
        if one.kind is not Kind.EPOCH or "begins" in values or one.labels.get("phase") or self._facts.epochs:
            return 0.0
        return max(values.get("seconds", 0.0), 0.0)

    def _step(self, one: Observation, source: Source) -> None:
        epoch = one.values.get("epoch")
        self._means = self._means or bool(one.values.get("mean"))
        steps = self._steps.get(epoch)
        if steps is None:
            if len(self._steps) >= MOST_EPOCHS:
                return
            steps = self._steps[epoch] = Steps(source)
        steps.add(one)

    def _add_epoch(self, one: Observation, source: Source) -> None:
        values = one.values
        if "begins" in values:
            self._epoch = values["begins"]
            return
        if len(self._facts.epochs) >= MOST_EPOCHS:
            return
        epoch = values.get("epoch", self._epoch)
        if epoch is None and one.labels.get("of") == "Keras":
            epoch = float(len(self._facts.epochs) + 1)  # as "Epoch 1/5" above it counts
        self._facts.epochs.append(
            EpochTime(
                source,
                epoch,
                values.get("seconds"),
                values.get("steps"),
                values.get("total"),
                values.get("its"),
                values.get("samples_s"),
                phase=one.labels.get("phase", ""),
                of=one.labels.get("of", ""),
            )
        )

    def _metrics(self, one: Observation, source: Source) -> None:
        values = self._percentages.scaled(one.values)
        when = values.get("epoch", values.get("step"))
        for name, value in values.items():
            if name in ("epoch", "step"):
                continue
            if not math.isfinite(value):
                if "loss" in name:
                    self._trouble(
                        Observation(Kind.TROUBLE, {}, {"what": "nan" if math.isnan(value) else "inf"}), source
                    )
                continue
            series = self._facts.metrics.get(name)
            if series is None:
                if len(self._facts.metrics) >= MOST_NAMES:
                    continue
                series = Series(value, value, value, value, 0, source, by_epoch="epoch" in values)
                self._facts.metrics[name] = series
            series.count += 1
            series.last, series.least, series.most = value, min(series.least, value), max(series.most, value)
            series.source = source
            series.points.append((series.count if when is None else when, value))
            if len(series.points) > MOST_POINTS:
                series.points = series.points[::2]

    def _total(self, one: Observation, source: Source) -> None:
        if len(self._facts.totals) < MOST_NAMES:
            self._facts.totals.append(Totals(one.values, one.labels, source))

    def _job(self, one: Observation, source: Source) -> None:
        if len(self._facts.jobs) < MOST_NAMES:
            self._facts.jobs.append(Totals(one.values, one.labels, source))

    def _setting(self, one: Observation, source: Source) -> None:
        phase = one.labels.get("phase", "")
        for name, value in one.values.items():
            if not (0 < value < LARGEST or (value == 0 and name in MAY_BE_NONE)):
                continue
            values = self._facts.settings.setdefault(name, [])
            if len(values) < MOST_NAMES:
                values.append(Said(value, source, phase))
        for name in filter(None, one.labels.get("device", "").split("; ")):
            if len(self._facts.devices) < MOST_NAMES:
                self._facts.devices.append(Device(redacted(name)[:80], source, phase))

    def _usage(self, one: Observation, source: Source) -> None:
        prefix = f"gpu{one.values.get('index', 0):.0f} " if one.kind is Kind.DEVICE else ""
        device = one.labels.get("name")
        if (
            device
            and not any(seen.name == device for seen in self._facts.devices)
            and len(self._facts.devices) < MOST_NAMES
        ):
            self._facts.devices.append(Device(device, source, "seen"))
        for name, value in one.values.items():
            if name == "index" or not math.isfinite(value):
                continue
            name = prefix + name
            if name not in self._facts.usage and len(self._facts.usage) >= 8 * MOST_NAMES:
                continue
            self._facts.usage.setdefault(name, Usage()).add(value)
            if one.time_s is not None and name.endswith("utilisation"):
                self._timed += 1
                if self._timed % self._stride == 0:
                    self._facts.timed.append((one.time_s, name, value))
                    if len(self._facts.timed) > MOST_TIMED:
                        self._facts.timed = self._facts.timed[1::2]
                        self._stride *= 2

    def _trouble(self, one: Observation, source: Source) -> None:
        if len(self._facts.troubles) < MOST_TROUBLES:
            self._facts.troubles.append(Trouble(one.labels["what"], source))

    def _statement(self, one: Observation, source: Source) -> None:
        if "before" in one.labels:
            if len(self._facts.rows) < MOST_STATEMENTS:
                cells = (Statement(redacted(one.labels[cell]), source) for cell in ("before", "after", "said"))
                self._facts.rows.append((next(cells), next(cells), next(cells)))
        elif len(self._facts.statements) < MOST_STATEMENTS:
            said = redacted(one.labels["said"])
            self._facts.statements.append(Statement(said, source, one.labels.get("phase", "")))
