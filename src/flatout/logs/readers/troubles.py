"""Lines that say why a training ended or went wrong."""

from __future__ import annotations

import re

from flatout.logs.observations import Kind, Observation

CUE = (
    rb"out of memory|OutOfMemory|oom-kill|OOM Killed|Killed|Bus error|bus error|SIGKILL|killed by signal"
    rb"|DUE TO TIME LIMIT|unable to write to file </torch|No space left on device"
    rb"|NCCL.{0,60}(?:timeout|Timeout)|[=: ']nan\b"
)
_KINDS = (
    ("oom", re.compile(r"CUDA out of memory|(?:torch\.)?OutOfMemoryError|CUDA error: out of memory")),
    ("host_oom", re.compile(r"oom-kill|OOM Killed|Out of memory: Kill|Detected \d+ oom")),
    ("shm", re.compile(r"unable to write to file </torch|[Bb]us error")),
    ("disk", re.compile(r"No space left on device")),
    ("timeout", re.compile(r"DUE TO TIME LIMIT")),
    ("nccl", re.compile(r"NCCL.{0,60}[Tt]imeout")),
    ("killed", re.compile(r"(?:^|\s)Killed\s*$|SIGKILL|killed by signal")),
    ("nan", re.compile(r"(?i)\bloss\w*['\"]?\s*[:=]?\s*['\"]?nan\b")),
)
_WRITTEN = tuple("#|*->")  # how lines of documents begin that speak of such errors
# Sentences about such errors, before the words and behind them.
_ADVICE = re.compile(
    r"(?i)\b(?:avoid\w*|prevent\w*|if|may|might|can|could|would|in case|handl\w*|except|tips?|hints?)\b[^.:;]*$"
)
_OF_SUCH = re.compile(r"(?i)\s+(?:errors|exceptions|issues|problems)\b")
WORDS = {
    "oom": "the GPU ran out of memory",
    "host_oom": "the machine or the job ran out of memory",
    "shm": "shared memory (/dev/shm) was full",
    "disk": "a disk was full",
    "timeout": "the job's time limit ended it",
    "nccl": "an exchange between ranks timed out",
    "killed": "a process was killed",
    "nan": "the loss became NaN",
    "inf": "the loss became infinite",
}


def parse(text: str) -> list[Observation]:
    """The first kind that fits."""
    if text.lstrip()[:1] in _WRITTEN:
        return []
    for what, pattern in _KINDS:
        found = pattern.search(text)
        if found and not _ADVICE.search(text[: found.start()]) and not _OF_SUCH.match(text, found.end()):
            return [Observation(Kind.TROUBLE, {}, {"what": what})]
    return []
