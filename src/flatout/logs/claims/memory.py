"""Claims about memory: batches in flight, and what a larger batch takes on the device."""

from __future__ import annotations

import re

from flatout.logs.claims.verdict import Claim, judged
from flatout.logs.facts import FileFacts, Said, Statement
from flatout.units import size

_BATCHES = re.compile(r"(?i)\bin flight|\bprefetch|\bqueued?\b")
_BATCH = re.compile(r"(?i)\bbatch(?:[_ -]?size)?\s*(?:of|=|:)?\s*(\d{1,9})\b")
_TIMES = re.compile(r"(?i)\b(\d{1,6})\s+workers\s*[x×*]\s*(?:prefetch(?:_factor)?\s*)?(\d{1,6})\b")
_TENSOR_BYTES = 4.0  # of a float32 element
SPARE = 0.8  # of the RAM: more leaves too little to the system, the page cache and the training itself
FULL = 0.9  # of a device


def sample_elements(facts: FileFacts) -> tuple[float, Said] | None:
    """Elements of one sample: a patch as the text gives it, or three channels of a square image."""
    if patch := facts.setting("sample_elements"):
        return patch.value, patch
    if edge := facts.setting("image_px"):
        return 3 * edge.value**2, edge
    return None


def batches_in_flight(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """Workers x prefetch_factor batches lie in host memory at once."""
    sample = sample_elements(facts)
    if sample is None:
        return []
    elements, shape = sample
    claims = []
    for one in facts.statements:
        count = next((q.low for q in one.all("batches")), None)
        times = _TIMES.search(one.said)
        if times:
            count = float(times[1]) * float(times[2])
        batch = facts.nearest("batch_size", one.source.line)
        stated = next(iter(one.all("bytes")), None)
        if count is None or batch is None or stated is None or not _BATCHES.search(one.said):
            continue
        floats = count * batch.value * elements * _TENSOR_BYTES
        found = f"{count:.0f} x {batch.value:.0f} x {elements:,.0f} elements are {size(floats)} as float32"
        found += f", {size(floats / 4)} as uint8"
        words = (f"{stated.text} for {count:.0f} batches", found)
        sources = (one.source, batch.source, shape.source)
        claims.append(judged("batches_in_flight", (stated.low, stated.high), (floats / 4, floats), words, sources, 0.1))
    return claims + _planned_loader(facts, elements, shape)


def _planned_loader(facts: FileFacts, elements: float, shape: Said) -> list[Claim]:
    """The loader that a table proposes, against the machine's RAM."""
    workers, prefetch = facts.setting("workers", phase="after"), facts.setting("prefetch", phase="after")
    batch = facts.setting("batch_size", phase="after")
    ram = max((one.value for one in facts.settings.get("ram_bytes", ())), default=None)
    if not (workers and prefetch and batch and ram):
        return []
    count = workers.value * prefetch.value
    floats = count * batch.value * elements * _TENSOR_BYTES
    said = f"{workers.value:.0f} workers x {prefetch.value:.0f} batches of {batch.value:.0f}"
    found = f"{count:.0f} batches in flight are {size(floats)} as float32, of {size(ram)} RAM"
    sources = (workers.source, prefetch.source, batch.source, shape.source)
    if floats > SPARE * ram:
        return [
            Claim(
                "batches_fit",
                "off",
                said,
                f"{found}: too little is left, the run would be killed",
                sources,
                floats / (SPARE * ram),
            )
        ]
    return [Claim("batches_fit", "consistent", said, found, sources)]


def device_memory_of_batch(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """More memory for a larger batch that is only its input: activations grow with the batch."""
    sample = sample_elements(facts)
    now, used, total = (facts.setting(name) for name in ("batch_size", "gpu_used_bytes", "gpu_total_bytes"))
    if sample is None or now is None:
        return []
    claims = []
    for one in facts.statements:
        larger, stated = _larger(one, now.value)
        if larger is None or stated is None:
            continue
        input_bytes = (larger - now.value) * sample[0] * _TENSOR_BYTES
        if stated > 1.3 * input_bytes:
            continue
        said = f"batch {larger:.0f} takes {size(stated)} more"
        found = f"that is the input alone ({size(input_bytes)}); activations grow with the batch"
        sources = (one.source, now.source)
        if used and total and used.value >= FULL * total.value:
            found += (
                f", and {size(used.value)} of {size(total.value)} are in use at batch {now.value:.0f}: out of memory"
            )
            claims.append(Claim("device_memory_of_batch", "off", said, found, (*sources, used.source)))
        else:
            found += "; `flatout memory` measures by how much"
            claims.append(Claim("device_memory_of_batch", "unknown", said, found, sources))
    return claims


def _larger(one: Statement, now: float) -> tuple[float | None, float | None]:
    batch, stated = _BATCH.search(one.said), next(iter(one.all("bytes")), None)
    if batch is None or stated is None or not re.search(r"[+]|(?i:more|needs|costs|adds)", one.said):
        return None, None
    larger = float(batch[1])
    return (larger, stated.low) if larger > now else (None, None)
