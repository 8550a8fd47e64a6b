"""The spans that the probe recorded in a process, by thread, with what their events carry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from flatout.export.timeline import Ints, Slices, Texts
from flatout.probe import events as kinds
from flatout.record import Events, ProcessRecord, ends
from flatout.record.packed_fields import array_bytes, batch_samples, batch_worker, batches_ready, transform_pixels

Numbers = Callable[[Events], Ints]


@dataclass(frozen=True)
class _Form:
    """How events of a kind are shown.

    Attributes:
        name: of the slice; empty: what ``arg`` names.
        category: viewers select by it.
        numbers: argument: its value, from the event; negative ones are not known.
        word: the argument that says what ``arg`` names; empty: not shown.
    """

    name: str
    category: str
    numbers: Mapping[str, Numbers] | None = None
    word: str = ""


def _a(events: Events) -> Ints:
    return np.asarray(events["a"], np.int64)


def _b(events: Events) -> Ints:
    return np.asarray(events["b"], np.int64)


_FORMS: dict[int, _Form] = {
    kinds.BATCH_WAIT: _Form(
        "waiting for a batch",
        "input",
        {"batch": _a, "samples": batch_samples, "worker": batch_worker, "ready": batches_ready},
        "loader",
    ),
    kinds.ITER_START: _Form("beginning a pass", "input", word="loader"),
    kinds.ITER_END: _Form("ending a pass", "input", word="loader"),
    kinds.H2D: _Form("copy to the device", "device", {"bytes": _a}, "line"),
    kinds.BLOCKING_READ: _Form("read from the device", "device", word="line"),
    kinds.FORWARD: _Form("forward", "training", word="module"),
    kinds.BACKWARD: _Form("backward", "training"),
    kinds.OPTIMIZER: _Form("optimizer", "training", word="optimizer"),
    kinds.ZERO_GRAD: _Form("zero_grad", "training"),
    kinds.CHECKPOINT: _Form("checkpoint", "output", {"bytes": _a}, "path"),
    kinds.VALIDATION: _Form("validation", "training", word="seen by"),
    kinds.LOG: _Form("log", "output", word="sink"),
    kinds.COMPILE: _Form("compile", "start-up", word="function"),
    kinds.IMPORT: _Form("import", "start-up", word="package"),
    kinds.DESERIALIZE: _Form("unpickle a batch", "input", {"bytes": _a}),
    kinds.COLLECTIVE: _Form("", "exchange"),
    kinds.EXPERIMENT: _Form("experiment after the window", "experiment", {"steps": _a}, "changed"),
    kinds.SAMPLING: _Form("choose indices", "input", {"batch": _a}),
    kinds.INDEX_WAIT: _Form("wait for indices", "idle"),
    kinds.FETCH: _Form("fetch a batch", "input", {"batch": _a, "samples": _b}),
    kinds.ITEM: _Form("sample", "input", {"index": _a}),
    kinds.COLLATE: _Form("collate", "input"),
    kinds.PUT: _Form("hand over a batch", "input", {"batch": _a}),
    kinds.SERIALIZE: _Form("pickle a batch", "input", {"bytes": _a}),
    kinds.TRANSFORM: _Form("", "transform", {"pixels": transform_pixels}),
    kinds.ARRAY_READ: _Form("read an array", "input", {"values": _a, "bytes": array_bytes}, "package"),
    kinds.WORKER_START: _Form("worker starts", "start-up", {"worker": _a}),
}
DEVICE_THREAD = 1 << 16  # beyond the numbers of threads: what ran on the device


def event_slices(
    process: ProcessRecord, texts: Texts, causes: Mapping[int, str], flows: Mapping[int, Ints]
) -> dict[int, list[Slices]]:
    """The spans of a process, by thread.

    Args:
        process: its events and names.
        texts: gets the names that the slices refer to.
        causes: of an event kind: the cause to be shown with its slices.
        flows: of an event kind: the flow of each of its events, in their order in the record; 0: none.
    """
    found: dict[int, list[Slices]] = {}
    for kind in np.unique(process.events["kind"]).tolist():
        form = _FORMS.get(kind)
        if form is None:
            continue
        events = process.of_kinds(kind)
        whole = [_slices(process, events, kind, form, texts, causes, flows.get(kind))]
        if kind == kinds.BATCH_WAIT and kind in flows:
            whole = [replace(whole[0], flow=np.zeros(0, np.int64)), _arrivals(whole[0], texts)]
        for thread in np.unique(events["thread"]).tolist():
            found.setdefault(thread, []).extend(each.take(events["thread"] == thread) for each in whole)
    device = _device(process, texts)
    if len(device):
        found[DEVICE_THREAD] = [device]
    return found


def _slices(
    process: ProcessRecord,
    events: Events,
    kind: int,
    form: _Form,
    texts: Texts,
    causes: Mapping[int, str],
    flow: Ints | None,
) -> Slices:
    named = _named(process, events, texts)
    words = {form.word: named} if form.word else {}
    if kind in causes:
        words["cause"] = np.full(len(events), texts.id(causes[kind]), np.int64)
    fallback = texts.id(form.name or kinds.KIND_NAMES[kind].lower())
    return Slices(
        start=events["start"].astype(np.int64),
        end=ends(events),
        name=np.full(len(events), fallback, np.int64) if form.name else np.where(named > 0, named, fallback),
        category=form.category,
        numbers={name: number(events) for name, number in (form.numbers or {}).items()},
        words=words,
        flow=flow if flow is not None else np.zeros(0, np.int64),
    )


def _arrivals(waits: Slices, texts: Texts) -> Slices:
    """The last moment of each wait, where its batch's flow ends.

    Viewers draw a flow towards the slice that begins later, and a wait often begins before its batch is made.
    """
    return Slices(
        start=np.maximum(waits.end - 1, waits.start),
        end=waits.end,
        name=np.full(len(waits), texts.id("batch arrives"), np.int64),
        category="input",
        numbers={"batch": waits.numbers["batch"]},
        flow=waits.flow,
        flow_ends=True,
    )


def _named(process: ProcessRecord, events: Events, texts: Texts) -> Ints:
    """Of each event the text of what its ``arg`` names; 0: nothing."""
    ids, place = np.unique(events["arg"], return_inverse=True)
    return np.array([texts.id(_name(process, id)) for id in ids.tolist()], np.int64)[place]


def _name(process: ProcessRecord, id: int) -> str:
    entry = process.names.entries.get(id, {})
    if entry.get("type") == "text":
        return str(entry.get("text", ""))
    if entry.get("file"):
        return f"{PurePath(str(entry['file'])).name}:{entry.get('line', 0)} {entry.get('source', '')}".rstrip()
    return str(entry.get("site") or entry.get("dataset") or "")


def _device(process: ProcessRecord, texts: Texts) -> Slices:
    """What ran on the device, on the host's clock."""
    events = process.of_kinds(kinds.DEVICE_SPAN)
    names = [
        _FORMS[kind].name if kind in _FORMS else kinds.KIND_NAMES.get(kind, "device").lower()
        for kind in events["arg"].tolist()
    ]
    return Slices(
        start=events["start"].astype(np.int64),
        end=ends(events),
        name=np.array([texts.id(name) for name in names], np.int64),
        category="device",
    )
