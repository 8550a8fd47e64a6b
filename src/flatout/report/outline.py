"""Contents and order of a report, before any layout: terminal and Markdown share these rows and sentences."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from keyword import iskeyword

from flatout.diagnose.reliability import BROAD
from flatout.measure.thresholds import LEAST_STEPS
from flatout.results import Account, Cause, Diagnosis, Epoch, Finding, Ledger, Line, NotMeasured, Remedy, Steps
from flatout.units import duration, interval, percent, rate, size

# Accounts below this share of the window are merged with their small siblings.
SMALL_SHARE = 0.005
# Hot lines shown for one account.
LINES_SHOWN = 3
# Costliest operators of a step that are shown; --json has ten.
SHOWN_OPERATORS = 4
# With more epochs than this, the middle ones are merged.
EPOCHS_SHOWN = 8
# A remedy whose whole interval stays below this factor is listed as one that does not pay now.
PAYS_FROM = 1.05
_LEAST_LIKELY = 1.005  # what is shown as 1.00x may be anything
# A predicted gain whose interval is wider than this factor is uncertain, and never the headline.
WIDEST = 3.0

CLASS_MEANING = {
    "identical": "the same training, only faster",
    "numerics": "the same training with different rounding",
    "optimisation": "other hyperparameters, so a different result",
    "data": "different inputs to the model",
}


def failure_sentence(diagnosis: Diagnosis) -> str | None:
    """The line below the verdict that says that the command failed; None: it did not."""
    return f"{diagnosis.failure[:1].upper()}{diagnosis.failure[1:]}." if diagnosis.failure else None


def other_problems(diagnosis: Diagnosis) -> list[str]:
    """The problems of the record besides the failure, which stands below the verdict."""
    return [problem for problem in diagnosis.problems if problem != diagnosis.failure]


@dataclass(frozen=True)
class Row:
    """One line of the ledger's tree.

    ``last`` holds, for each level below the top, whether the row is the last of its siblings.
    """

    label: str
    seconds: float
    share: float | None  # of the window; None for a line of code
    last: tuple[bool, ...] = ()
    source: str | None = None  # the text of a line of code
    note: str | None = None


def ledger_rows(ledger: Ledger) -> list[Row]:
    """Flatten the ledger into rows whose top level adds up to the window.

    Small accounts are merged; "unaccounted" is always present, and last.
    """
    unaccounted_share = ledger.unaccounted_s / ledger.window_s if ledger.window_s > 0 else 0.0
    return [
        *_rows(ledger.accounts, (), ledger.window_s, at_top=True),
        Row("unaccounted", ledger.unaccounted_s, unaccounted_share),
    ]


def _rows(
    siblings: tuple[Account, ...],
    above: tuple[bool, ...],
    window_s: float,
    *,
    at_top: bool = False,
    owner: Account | None = None,
) -> Iterator[Row]:
    """Walk one level of the tree; ``owner`` is the account whose children these are, its hot lines come last."""
    small = [account for account in siblings if account.share < SMALL_SHARE]
    if len(small) == 1:
        small = []  # merging a single account would only hide its name
    shown = [account for account in siblings if account not in small]
    if not shown and owner is not None:
        small = []  # the owner's own row suffices
    lines = (
        [line for line in _own_lines(owner)[:LINES_SHOWN] if line.seconds >= SMALL_SHARE * window_s] if owner else []
    )
    left = len(shown) + bool(small) + len(lines)

    def position() -> tuple[bool, ...]:
        nonlocal left
        left -= 1
        return () if at_top else (*above, left == 0)

    for account in shown:
        last = position()
        yield Row(account.label, account.seconds, account.share, last, note=account.note)
        yield from _rows(account.children, last, window_s, owner=account)
    if small:
        summed_s, summed_share = sum(one.seconds for one in small), sum(one.share for one in small)
        yield Row("others, each under 0.5%", summed_s, summed_share, position())
    for line in lines:
        yield Row(_place(line), line.seconds, None, position(), source=line.source.strip() or line.function)


def _own_lines(account: Account) -> list[Line]:
    """Its hot lines, except those that are shown as its child or that are the account itself."""
    told = {(line.file, line.line) for child in account.children for line in child.lines}
    itself = {(line.file, line.line) for line in account.lines if f"{account.label} ".startswith(f"{_place(line)} ")}
    return [line for line in account.lines if (line.file, line.line) not in told | itself]


def _place(line: Line) -> str:
    return f"{line.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{line.line}"


def no_cause(diagnosis: Diagnosis) -> str:
    """What is said in place of causes."""
    if diagnosis.ledger is None or diagnosis.ledger.window_s <= 0:
        return "Not known, because no step was measured."
    return "No cause was found."


def ledger_facts(ledger: Ledger) -> list[tuple[str, str]]:
    """Name and state the distribution of the steps, the throughput, and what lies outside the training window."""
    return [*(_step_facts(ledger.steps) if ledger.steps.count else ()), *_outside_facts(ledger)]


def _step_facts(steps: Steps) -> list[tuple[str, str]]:
    spread = (
        f"median {duration(steps.median_s)}, 95th percentile {duration(steps.p95_s)}, "
        f"range {duration(steps.min_s)} to {duration(steps.max_s)}"
    )
    facts = [("steps", f"one, of {duration(steps.median_s)}" if steps.count == 1 else spread)]
    if steps.samples > 0:
        facts.append(("throughput", _throughput(steps)))
    else:
        facts.append(("throughput", "not measured, because no batch size was seen"))
    if steps.accumulation > 1:
        facts.append(("accumulation", f"{steps.accumulation:.3g} batches make one optimizer step"))
    return facts


def _outside_facts(ledger: Ledger) -> list[tuple[str, str]]:
    parts = [one for one in ledger.startup if one.share >= 0.01]
    named = [f"{one.label} {duration(one.seconds)}" for one in parts]
    rest_s = ledger.startup_s - sum(one.seconds for one in parts)
    if parts and rest_s >= 0.01 * ledger.startup_s:
        named.append(f"other {duration(rest_s)}")
    detail = f": {', '.join(named)}" if named else ""
    return [
        ("start-up", f"{duration(ledger.startup_s)} to the end of the first step{detail}"),
        ("ending", f"{duration(ledger.ending_s)} after the training window"),
    ]


def _throughput(steps: Steps) -> str:
    """Rates of all training processes together if there are several, since one's rate would be misread as the total."""
    if steps.processes == 1:
        return f"{rate(steps.rate_sps)}, waits included"
    one = f"{rate(steps.rate_sps)} of this one"
    if not steps.all_rate_sps:
        return f"{one} of {steps.processes} training processes, waits included"
    return f"{rate(steps.all_rate_sps)} of {steps.processes} training processes together, {one}, waits included"


def epoch_table(ledger: Ledger, *, n_accounts: int = 2) -> tuple[list[str], list[list[str]]]:
    """Tabulate the epochs: header and rows; no rows when there are not at least two epochs.

    The shares are those of the run's ``n_accounts`` largest accounts. Of many epochs the middle ones
    are summed up in one row.
    """
    accounts = sorted(ledger.accounts, key=lambda one: one.share, reverse=True)[:n_accounts]
    header = ["epoch", "steps", "time", "samples/s", *(one.label for one in accounts), "data", ""]
    epochs = ledger.epochs
    if len(epochs) < 2:
        return header, []

    def cells(epoch: Epoch) -> list[str]:
        throughput = rate(epoch.samples / epoch.seconds) if epoch.seconds > 0 else rate(0)
        return [
            str(epoch.index + 1),
            f"{epoch.steps:,}",
            duration(epoch.seconds),
            throughput.removesuffix(" samples/s"),
            *(percent(epoch.shares[one.id], decimals=1) if one.id in epoch.shares else "-" for one in accounts),
            _origin(epoch),
            "" if epoch.complete else "cut off",
        ]

    if len(epochs) <= EPOCHS_SHOWN:
        return header, [cells(epoch) for epoch in epochs]
    middle = epochs[4:-2]
    median_s = statistics.median(epoch.seconds for epoch in middle)
    summary = [
        f"{middle[0].index + 1}-{middle[-1].index + 1}",
        "",
        duration(median_s),
        "",
        *("" for _ in accounts),
        "",
        "median",
    ]
    return header, [*(cells(epoch) for epoch in epochs[:4]), summary, *(cells(epoch) for epoch in epochs[-2:])]


def _origin(epoch: Epoch) -> str:
    if not epoch.reads_data:
        return "no reads"
    return {True: "cold", False: "warm", None: "not measured"}[epoch.cold]


# Before the causes that another one hides, and before the remedies that do not pay now.
HIDDEN = "Partly explained by {cause}; check again once that is fixed:"
LITTLE_EFFECT = "Little effect now, or one that only a trial can show:"
EPOCH_LEGEND = "cold: read from storage; warm: from memory"


def first_move(diagnosis: Diagnosis) -> str | None:
    """State the largest predicted gain in one line; None if no remedy should pay, or all such are uncertain."""
    if diagnosis.ledger is not None and diagnosis.ledger.steps.count < LEAST_STEPS:
        return None
    paying, _ = paying_and_not(diagnosis)
    sure = [remedy for remedy in paying if not uncertain(remedy)]
    if not sure:
        return None
    largest, least = paying[0], sure[0].gain.predicted
    if largest is not sure[0] and largest.gain.low >= least:  # it is uncertain by how much it is better
        return f"Largest predicted gain: {interval(largest.gain)}, uncertain, in samples/s: {largest.title}."
    apart = "" if sure[0] is largest else ", uncertain ones aside"
    return f"Largest predicted gain{apart}: {interval(sure[0].gain)} in samples/s: {sure[0].title}."


def uncertain(remedy: Remedy) -> bool:
    """True if the interval includes a loss, or is too wide to be informative."""
    return remedy.gain.low < 1.0 or remedy.gain.high > WIDEST * remedy.gain.low


def predicted(remedy: Remedy) -> str:
    """The predicted gain, as the list of remedies shows it."""
    return f"predicted {interval(remedy.gain)}{', uncertain' if uncertain(remedy) else ''}"


def confidence_in_words(cause: Cause) -> str:
    """Say how sure it is that the cause is the fault."""
    if cause.confidence >= 0.8:
        return "high confidence"
    if cause.confidence >= 0.5:
        return "medium confidence"
    return "low confidence" + (", often a sign of another fault" if cause.id in BROAD else "")


def open_and_hidden(diagnosis: Diagnosis) -> tuple[list[Cause], dict[str, list[Cause]]]:
    """Separate the causes to act on from those that another one hides (by its id); rank order is kept."""
    shown: list[Cause] = []
    hidden: dict[str, list[Cause]] = {}
    for cause in diagnosis.causes:
        if cause.hidden_by is None:
            shown.append(cause)
        else:
            hidden.setdefault(cause.hidden_by, []).append(cause)
    return shown, hidden


def evidence_texts(cause: Cause) -> list[str]:
    """The evidence for a reader: of a step's operators only the costliest ones."""
    operators = [one for one in cause.evidence if "operator" in one.values]
    rest = operators[SHOWN_OPERATORS:] if len(operators) > SHOWN_OPERATORS + 1 else []
    texts = []
    for one in cause.evidence:
        if rest and one is rest[0]:
            share = sum(float(other.values["share"]) for other in rest)
            texts.append(f"{len(rest)} more operators: {percent(share)} of the time in kernels (in --json)")
        if one not in rest:
            texts.append(one.text)
    return texts


def paying_and_not(diagnosis: Diagnosis) -> tuple[list[Remedy], list[Remedy]]:
    """Separate the remedies that should pay from those predicted to change almost nothing, or whose gain is unknown."""
    return [one for one in diagnosis.remedies if _pays(one)], [one for one in diagnosis.remedies if not _pays(one)]


def _pays(remedy: Remedy) -> bool:
    return remedy.gain.high >= PAYS_FROM and remedy.gain.predicted >= _LEAST_LIKELY


def overlaps(remedies: Sequence[Remedy]) -> list[str]:
    """For each remedy of a list in their order what says that one before it leaves nothing for it, or nothing."""
    ranks = {remedy.id: rank for rank, remedy in enumerate(remedies, start=1)}
    return [
        f"Predicted to add nothing to {ranks[one.adds_nothing_to]}." if one.adds_nothing_to in ranks else ""
        for one in remedies
    ]


# Before the plans.
TOGETHER = "Several of them together, predicted as a whole:"


def plans(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Name and content of each plan that bundles remedies; one of a single remedy says nothing new."""
    return [
        (
            plan.name,
            f"{interval(plan.gain)}, {plan.risk} risk, memory {_memory(plan.memory_bytes)}: {'; '.join(plan.remedies)}",
        )
        for plan in diagnosis.plans
        if len(plan.remedies) > 1
    ]


def shared_basis(remedies: Sequence[Remedy]) -> tuple[str, list[str]]:
    """The assumptions that the predictions of all these remedies end with, and the basis of each without them."""
    clauses = [remedy.basis.split("; ") for remedy in remedies]
    shared = 0
    if len(remedies) > 1:
        while all(len(one) > shared + 1 for one in clauses) and len({one[-1 - shared] for one in clauses}) == 1:
            shared += 1
    said = f"In all predictions: {'; '.join(clauses[0][-shared:])}." if shared else ""
    return said, ["; ".join(one[: len(one) - shared]) for one in clauses]


def memory_in_words(remedy: Remedy) -> str:
    """Describe what a remedy adds to the host's memory, and to the GPU's if known and not zero."""
    device = f", {_added(remedy.device_bytes)} on the GPU" if remedy.device_bytes else ""
    return f"{_memory(remedy.memory_bytes)}{device}"


def _memory(n_bytes: int | None) -> str:
    if n_bytes is None:
        return "not known"
    return _added(n_bytes) if n_bytes else "none"


def _added(n_bytes: int) -> str:
    return f"{'+' if n_bytes > 0 else ''}{size(n_bytes)}"


def class_legend(remedies: Iterable[Remedy]) -> str:
    """Explain the semantic classes that occur."""
    used = dict.fromkeys(remedy.semantic_class for remedy in remedies)
    meanings = "; ".join(f"{name} = {CLASS_MEANING[name]}" for name in used if name in CLASS_MEANING)
    return f"Class: {meanings}." if meanings else ""


def finding_sentences(findings: Iterable[Finding]) -> list[str]:
    """One sentence a finding: what, the numbers, what to do."""
    sentences = []
    for one in findings:
        numbers = "; ".join(evidence.text for evidence in one.evidence)
        sentences.append(f"{one.title} ({one.id}): {numbers}. {_begun(one.how)}")
    return sentences


def _begun(how: str) -> str:
    """As the beginning of a sentence; code, such as ``model = torch.compile(model)``, stays as it is."""
    first, _, rest = how.partition(" ")
    code = not first.isalpha() or rest.startswith("=") or ("." in rest.partition(" ")[0][:-1] and iskeyword(first))
    return how if code else how[:1].upper() + how[1:]


def not_measured_sentences(not_measured: Iterable[NotMeasured]) -> list[str]:
    """List what could not be evaluated; causes with the same reason share a sentence."""
    ids: dict[str, list[str]] = {}
    for one in not_measured:
        ids.setdefault(one.because, []).append(one.id)
    return [f"{', '.join(names)}: not measured, because {because}" for because, names in ids.items()]
