"""The plain result objects that every report renders: without logic, and reloadable from JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

RISK, OPPORTUNITY = "risk", "opportunity"  # kinds of findings


@dataclass(frozen=True)
class Line:
    """A line of code and the time that stack samples charge to it."""

    file: str
    line: int
    function: str
    source: str
    seconds: float


@dataclass(frozen=True)
class Account:
    """One exclusive account of the ledger; children add up to it."""

    id: str  # dotted path, such as "batch_wait.fetch_blocked"
    label: str
    seconds: float
    share: float  # of the ledger's window
    children: tuple[Account, ...] = ()
    lines: tuple[Line, ...] = ()  # hottest first
    note: str | None = None


@dataclass(frozen=True)
class Epoch:
    """One pass over the training loader (the last one may be cut off)."""

    index: int
    seconds: float
    steps: int
    samples: int
    cold: bool | None  # read from storage rather than memory; None: not measured, or nothing was read
    complete: bool
    shares: dict[str, float]  # top-level account id -> share of the epoch
    reads_data: bool = True  # False: the fetches read nothing: samples made, or held in memory


@dataclass(frozen=True)
class Steps:
    """Distribution of the training steps in the window."""

    count: int
    samples: int
    median_s: float
    p95_s: float
    min_s: float
    max_s: float
    rate_sps: float  # samples/s over the window's wall time, the wait included
    accumulation: float  # batches per optimizer step
    processes: int = 1  # that trained in the window, this one included
    all_rate_sps: float = 0.0  # samples/s of all of them together; 0: not measured


@dataclass(frozen=True)
class Ledger:
    """Wall time by account. Top-level accounts and ``unaccounted`` add up to ``window_s``."""

    wall_s: float  # first process start to the end of the record
    startup_s: float  # up to the end of the first training step
    startup: tuple[Account, ...]  # shares are of startup_s
    window_s: float  # end of the first step to that of the last one and of the validation that closes its epoch
    accounts: tuple[Account, ...]  # largest first
    unaccounted_s: float
    ending_s: float  # after the window
    epochs: tuple[Epoch, ...]
    steps: Steps
    notes: tuple[str, ...] = ()

    def account(self, id: str) -> Account | None:
        """Find an account by its dotted id, at any depth."""
        pending = list(self.accounts)
        while pending:
            account = pending.pop()
            if account.id == id:
                return account
            pending.extend(account.children)
        return None

    def share(self, id: str) -> float:
        """Share of the window of an account; 0.0 when the record has no such account."""
        account = self.account(id)
        return account.share if account else 0.0


@dataclass(frozen=True)
class Evidence:
    """One sentence with the numbers that it states."""

    text: str
    values: dict[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Cause:
    """A named reason. ``share`` is of the window's wall time."""

    id: str
    title: str
    share: float
    confidence: float  # 0..1
    evidence: tuple[Evidence, ...]
    hidden_by: str | None = None  # id of the larger cause that must go first


@dataclass(frozen=True)
class Finding:
    """A risk or an opportunity that costs no time now."""

    id: str
    kind: str  # risk | opportunity
    title: str
    how: str  # what to do about it
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class NotMeasured:
    """A cause that could not be judged, and why."""

    id: str
    because: str


@dataclass(frozen=True)
class Gain:
    """Predicted factor on throughput (samples/s); 1.0 is no change."""

    predicted: float
    low: float
    high: float


@dataclass(frozen=True)
class Remedy:
    """A change, its predicted gain and its costs."""

    id: str
    cause: str
    title: str  # imperative, with the value: "raise num_workers from 1 to 4"
    semantic_class: str  # identical | numerics | optimisation | data
    risk: str  # low | medium | high
    gain: Gain
    memory_bytes: int | None  # host memory added; None: unknown
    how: str  # the code or option to write by hand
    basis: str  # what the prediction rests on
    settings: dict[str, Any] = field(default_factory=dict)  # as ``flatout apply --set`` takes them; empty: manual
    shm_bytes: int | None = 0  # added in /dev/shm; None: unknown
    device_bytes: int | None = 0  # added on the GPU; None: unknown
    mechanics: str = ""  # what a trial prepares besides the settings, by name; empty: nothing
    adds_nothing_to: str = ""  # id of the first one with a larger gain that leaves nothing for this one; empty: none


@dataclass(frozen=True)
class RemedyBundle:
    """Remedies bundled: conservative, moderate or aggressive."""

    name: str
    settings: dict[str, Any]  # as ``flatout apply --set`` takes them
    remedies: tuple[str, ...]  # titles, largest predicted gain first
    gain: Gain  # of the whole
    memory_bytes: int | None  # host memory added; None: not known
    risk: str  # the highest of its remedies


@dataclass(frozen=True)
class Diagnosis:
    """The content of a report."""

    run_id: str
    run_path: str
    command: tuple[str, ...]
    verdict: str  # one sentence
    ledger: Ledger | None
    causes: tuple[Cause, ...]  # rank order
    not_measured: tuple[NotMeasured, ...]
    remedies: tuple[Remedy, ...]  # largest predicted gain first
    problems: tuple[str, ...]
    next_command: str
    machine: str  # one line
    findings: tuple[Finding, ...] = ()  # risks and opportunities besides the causes
    plans: tuple[RemedyBundle, ...] = ()  # from the one that changes least on
    loader: dict[str, Any] = field(default_factory=dict)  # settings of the training's DataLoader; empty: it has none
    stop: str | None = None  # why the recording ended, as in run.json; None: it was not closed
    exit_code: int | None = None  # of the command, if it ended by itself
    failure: str | None = None  # that the command failed, in one sentence, which is also the first of the problems
