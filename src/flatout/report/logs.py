"""What foreign logs say, as lines of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

from flatout.logs.claims import Claim
from flatout.logs.facts import EpochTime, FileFacts, Usage
from flatout.logs.postmortem import Epoch, FileResult, Joined, Postmortem
from flatout.logs.readers.troubles import WORDS
from flatout.report.layout import left, shorten_middle, wrap
from flatout.terminal_text import one_line
from flatout.units import counted, duration, factor, percent, rate, short, size

WIDTH = 80
SHOWN_EPOCHS = 12
SHOWN_CLAIMS = 60
NAMED_FILES = 3  # of more than these, a finding is one sentence
WAITS = 0.2  # of the step time
_MARKS = {"off": "off", "unknown": "cannot be known", "consistent": "consistent"}
_ORDER = ("off", "unknown", "consistent")


def lines(read: Postmortem) -> list[str]:
    """For a terminal: a verdict, each file, the claims, and what is not known."""
    text = [*wrap(verdict(read), WIDTH), ""]
    for result in read.files:
        text += _file(result)
    text += _joined(read.joined)
    text += _claims(read.claims)
    text += ["Not known from these logs"]
    for one in read.unknown:
        text += _hanging(f"{one.what}: {one.why}", "  - ")
    text += _hanging(f"Measure it: {read.command}", "  ")
    return [one_line(line) for line in text]


def verdict(read: Postmortem) -> str:
    """One or two sentences on all of it."""
    off = sum(one.verdict == "off" for one in read.claims)
    found: dict[str, list[tuple[str, str]]] = {}  # what -> (file, the sentence on it alone)
    for result in read.files:
        for what, sentence in _findings(result):
            found.setdefault(what, []).append((result.facts.file, sentence))
    parts: list[str] = []
    for what, places in found.items():
        if len(places) > NAMED_FILES:
            names = ", ".join(file for file, _ in places[:NAMED_FILES])
            parts.append(f"{what} in {len(places):,} of {len(read.files):,} files: {names}, ...")
        else:
            parts += [f"{file}: {sentence}" if len(read.files) > 1 else sentence for file, sentence in places]
    if not read.claims:
        parts.append("Nothing was claimed that could be checked.")
    elif off:
        parts.append(f"{off} of {counted(len(read.claims), 'claim')} {'is' if off == 1 else 'are'} off.")
    else:
        parts.append(f"Nothing contradicts itself among {counted(len(read.claims), 'claim')}.")
    text = " ".join(parts)
    return text if len(read.files) > 1 else text[:1].upper() + text[1:]  # names stay as they are written


def _findings(result: FileResult) -> Iterator[tuple[str, str]]:
    """What stands out of a file: in words that hold for several files, and as a sentence on this one."""
    if result.facts.troubles:
        trouble = result.facts.troubles[0]
        yield WORDS[trouble.what], f"{WORDS[trouble.what]} ({trouble.source.place})."
    if result.cold:
        yield (
            "the first epoch took much longer than the later ones",
            f"the first epoch took {factor(result.cold.ratio)} as long as the later ones: "
            "cold data or caches, unpacking or compiling may be why.",
        )
    elif (waiting := _waiting(result)) is not None and waiting >= WAITS:
        yield (
            f"the scripts count {percent(WAITS)} or more of their step time as waiting for data",
            f"the script counts {percent(waiting)} of its step time as waiting for data.",
        )


def _waiting(result: FileResult) -> float | None:
    found = [one.time.waiting for one in result.epochs if one.time.waiting is not None]
    return sum(found) / len(found) if found else None


def _file(result: FileResult) -> list[str]:
    facts = result.facts
    head = f"{shorten_middle(facts.file, 46, '...')}  ({facts.format}, {size(facts.bytes)})"
    text = [head]
    for note in facts.notes:
        text += _hanging(note, "  note: ")
    if settings := _settings(facts):
        text += _hanging(settings, "  ")
    if result.epochs:
        text += _table(result.epochs)
    if facts.metrics:
        named = [
            f"{name} {short(series.first, 4)} -> {short(series.last, 4)}"
            for name, series in sorted(facts.metrics.items())[:6]
        ]
        text += _hanging("; ".join(named), "  ")
    for total in facts.totals[:3]:
        text += _hanging(f"{_totals(total.values)} (line {total.source.line})", "  ")
    for job in facts.jobs[:8]:
        text += _hanging(_job(job.values, job.labels), "  ")
    for name, usage in list(facts.usage.items())[:16]:
        text.append(f"  {left(name, 22)}{_usage(name, usage)}")
    for trouble in facts.troubles[:5]:
        text += _hanging(f'{WORDS[trouble.what]}, line {trouble.source.line}: "{trouble.source.text}"', "  ! ")
    if result.projection:
        one = result.projection
        sentence = (
            f"Projected: {duration(one.remaining_s)} left ({duration(one.low_s)} to {duration(one.high_s)}, 90% "
            f"interval), {duration(one.total_s)} in all; from {one.basis}"
        )
        text += _hanging(sentence, "  ")
    return [*text, ""]


def _settings(facts: FileFacts) -> str:
    named = []
    for name, values in facts.settings.items():
        shown = list(dict.fromkeys(size(one.value) if name.endswith("_bytes") else f"{one.value:,g}" for one in values))
        named.append(f"{name} {' / '.join(shown[:3])}")
    if facts.devices:
        named.append(" / ".join(dict.fromkeys(one.name for one in facts.devices)))
    return ", ".join(named)


def _table(epochs: tuple[Epoch, ...]) -> list[str]:
    waits = any(one.time.waiting is not None for one in epochs)
    wide = max(12, *(len(_steps(one.time)) + 2 for one in epochs))
    text = [
        f"  {'epoch':>8}{'steps':>{wide}}{'time':>14}{'steps/s':>10}{'samples/s':>12}"
        + (f"{'waiting':>10}" if waits else "")
    ]
    shown = list(epochs)
    cut = len(shown) - SHOWN_EPOCHS
    if cut > 0:
        shown = shown[: SHOWN_EPOCHS // 2] + shown[-SHOWN_EPOCHS // 2 :]
    for place, one in enumerate(shown):
        if cut > 0 and place == SHOWN_EPOCHS // 2:
            text.append(f"  {'...':>8}  {counted(cut, 'epoch')} between")
        text.append(_row(one, wide, waits))
    return text


def _steps(time: EpochTime) -> str:
    """Of those that were to be done, those whose time was measured: "500 to 1,500/2,000"."""
    if time.steps is None:
        return ""
    done = f"{time.done:,.0f}" + ("" if time.complete else f"/{time.total:,.0f}")
    return f"{time.begin:,.0f} to {done}" if time.begin else done


def _row(one: Epoch, wide: int, waits: bool) -> str:
    time = one.time
    its = time.steps / time.seconds if time.steps and time.seconds else time.its
    row = f"  {'-' if time.epoch is None else f'{time.epoch:g}':>8}{_steps(time):>{wide}}"
    row += f"{duration(time.seconds or 0):>14}"
    row += f"{'-' if its is None else short(its):>10}"
    row += f"{'-' if one.rate_sps is None else rate(one.rate_sps).removesuffix(' samples/s'):>12}"
    if waits:
        row += f"{'-' if time.waiting is None else percent(time.waiting):>10}"
    return row


def _totals(values: dict[str, float]) -> str:
    named = [f"runtime {duration(values['runtime_s'])}"] if "runtime_s" in values else []
    if "samples_s" in values:
        named.append(rate(values["samples_s"]))
    if "its" in values:
        named.append(f"{short(values['its'])} steps/s")
    return "the trainer's own totals: " + ", ".join(named)


def _job(values: dict[str, float], labels: dict[str, str]) -> str:
    named = [f"job {labels.get('id', '')} {labels.get('state', '')}".strip()]
    if "elapsed_s" in values:
        named.append(f"ran {duration(values['elapsed_s'])}")
    if values.get("cpu_s") and values.get("cores") and values.get("elapsed_s"):
        share = values["cpu_s"] / values["cores"] / values["elapsed_s"]
        named.append(f"its {counted(int(values['cores']), 'core')} were busy {percent(share)} of the time")
    if "rss_bytes" in values:
        named.append(f"at most {size(values['rss_bytes'])} RSS (sampled)")
    return ", ".join(named)


def _usage(name: str, usage: Usage) -> str:
    if name.endswith("bytes"):
        return f"mean {size(usage.mean)}, at most {size(usage.most)}"
    if name.endswith(("utilisation", "cpu")):
        idle = f", below 5% in {percent(usage.idle / usage.count)} of {usage.count:,} samples"
        return f"mean {percent(usage.mean)}, {percent(usage.least)} to {percent(usage.most)}{idle}"
    unit = {"watts": " W", "celsius": " °C", "clock_hz": " MHz"}.get(name.split()[-1], "")
    scale = 1e-6 if name.endswith("clock_hz") else 1.0
    return f"mean {short(usage.mean * scale)}{unit}, {short(usage.least * scale)} to {short(usage.most * scale)}{unit}"


def _joined(joined: tuple[Joined, ...]) -> list[str]:
    if not joined:
        return []
    text = ["Joined by time"]
    for one in joined:
        if one.mean is None or one.idle is None:
            text += _hanging(f"{one.name}: {one.why}", "  ")
        else:
            text += _hanging(
                f"{one.name} while {one.training} ran: mean {percent(one.mean)}, below 5% in {percent(one.idle)} of "
                f"{counted(one.samples, 'sample')} in the {duration(one.seconds or 0.0)} up to its last line",
                "  ",
            )
    return [*text, ""]


def _claims(claims: tuple[Claim, ...]) -> list[str]:
    if not claims:
        return []
    text = ["Claims, checked against the log's own numbers"]
    ordered = sorted(claims, key=lambda one: _ORDER.index(one.verdict))
    for one in ordered[:SHOWN_CLAIMS]:
        mark = _MARKS[one.verdict] + (f" by {factor(one.off_by)}" if one.off_by else "")
        text += _hanging(f"{mark}: {one.said}", "  ")
        text += _hanging(f"{one.found}", "      ")
        for source in one.sources[:1]:
            if source.text:
                text.append(shorten(f"      {source.place}: {source.text.strip()}"))
    if len(ordered) > SHOWN_CLAIMS:
        text.append(f"  and {len(ordered) - SHOWN_CLAIMS} more in --json")
    return [*text, ""]


def shorten(text: str) -> str:
    """Cut at the end, so that it fits."""
    text = one_line(text)
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


def _hanging(text: str, head: str) -> list[str]:
    wrapped = wrap(text, WIDTH - len(head) - 2)
    return [head + wrapped[0], *(" " * (len(head) + 2) + line for line in wrapped[1:])]
