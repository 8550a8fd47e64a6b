"""Input without a DataLoader: the part of the time between a step's measured calls that is spent on batches."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from flatout.measure.divided import Divided, divide
from flatout.measure.functions import function_group
from flatout.measure.samples import Samples, frames_of
from flatout.measure.timeline import Flags, Ints, Pieces

# Common names of functions that return a batch: batchgenerators, nanoGPT, Keras, fairseq, tensor2tensor, ...
_FUNCTION = re.compile(
    r"(^|[._])((get|next|load|make|sample|fetch|build|create|draw|prepare|generate|random|iterate)_?(next_?)?(mini_?)?"
    r"(batch(es)?|items?|samples?|data|example)|pre_?fetch\w*|collate\w*|__next__|__getitem__)$",
    re.IGNORECASE,
)
_SOURCE = re.compile(
    r"\bnext\(|(replay|buffer|memory)\w*\.sample\(|\b(get|next|load|make|sample|fetch|draw|random)_?(mini_?)?(batch|data)\w*\(|"
    r"\bfor\b.*\bin\b.*(loader|batche?s\b|queue|data_?iter|dataset)",
    re.IGNORECASE,
)
# Groups of functions that work on samples, whoever calls them.
_PREPARING = ("read", "network", "decode", "decompress", "lookup", "tokenise")
# Waiting for a thread or a process of the user's: its queue, its pool, its futures, its pipe.
_AWAITED = re.compile(
    r"/(queue|multiprocessing/queues)\.py$|/multiprocessing/(pool|connection|managers)\.py$|"
    r"/concurrent/futures/(_base|thread|process)\.py$|/joblib/parallel\.py$|/ray/_private/worker\.py$"
)
_TAKES = re.compile(
    r"\b(get|next|__next__|recv|recv_bytes|poll|wait|result|result_iterator|as_completed|_retrieve|map|starmap"
    r"|_call_process_chunk|_chain_from_iterable_of_lists)\b"
)
# What is waited for besides input: the writing of files, the end of threads.
_WRITES = re.compile(r"save|checkpoint|write|upload|flush|dump|shutdown|join\(|close|log(ger|ging)?\b", re.IGNORECASE)
_ASSIGNED = re.compile(r"(?:for\s+)?\(?([\w\s,]+)\)?\s*(?:=(?!=)|\bin\b)")
_NAME = re.compile(r"\b[A-Za-z_]\w*\b")
# Stack traces as text, which read source files: anomaly detection keeps one of each operator.
_TRACES = re.compile(r"/python3[^/]*/(traceback|linecache)\.py$|/torch/fx/traceback\.py$")
# Pictures and tables that are made for people.
_PLOTS = re.compile(r"/(matplotlib|seaborn|plotly|bokeh|altair|pandas/plotting)/")
_PICTURES_READ = re.compile(r"\bimread\b")
_OUTPUT = re.compile(r"\b(savefig|save_image|imsave|imwrite|write_(image|html|png|jpeg|csv)|to_(csv|parquet|excel))\(")
_TENSORS = re.compile(r"\btorch\.(tensor|as_tensor|from_numpy|\w+Tensor)\(")
_LOOP = re.compile(r"^(async )?for\b")
# Iterables in a loop that yield no batches: a progress bar around them, parameters of a model.
_NO_SOURCE = re.compile(r"/(tqdm|rich|torch|fastprogress|progressbar)/")


def is_input(frames: Sequence[Sequence[Any]], loops: Collection[tuple[str, str]] | None = None) -> bool:
    """True if a sampled stack makes, or waits for, a batch.

    Args:
        frames: innermost first, ``[file, line, function, source, is_user]`` as the record keeps them.
        loops: (file, function) that may hold a loop over batches: those that also run while a step computes. What other
            loops go through (thresholds of a metric, parameters) is no input by itself. None: any.
    """
    paths = [str(frame[0]).replace("\\", "/") for frame in frames]
    if any(map(_TRACES.search, paths)) or _is_output(frames, paths):
        return False
    if function_group(frames) in _PREPARING or awaits_maker(frames):
        return True
    inner = ""
    for file, _line, function, source, _user in frames:
        text = str(source).strip()
        if _FUNCTION.search(str(function)) and not _NO_SOURCE.search(str(file)):
            return True
        looping = inner and _LOOP.match(text) and (loops is None or (str(file), str(function)) in loops)
        if not _NO_SOURCE.search(inner) and (looping or _SOURCE.search(text)):
            return True
        inner = str(file).replace("\\", "/")
    return False


def _is_output(frames: Sequence[Sequence[Any]], paths: Sequence[str]) -> bool:
    """True if a stack draws or writes something for people, which reads fonts and other files."""
    caller = next((frame for frame in frames if frame[4]), None)
    if caller is not None and _OUTPUT.search(str(caller[3])):
        return True
    return any(map(_PLOTS.search, paths)) and not any(_PICTURES_READ.search(str(frame[2])) for frame in frames)


def awaits_maker(frames: Sequence[Sequence[Any]]) -> bool:
    """True if a sampled stack waits for what a thread or a process of the user's makes.

    Args:
        frames: as for ``is_input``.
    """
    for file, _line, function, _source, user in frames:
        if user:
            return False
        if _AWAITED.search(str(file).replace("\\", "/")) and _TAKES.search(str(function)):
            caller = next((frame for frame in frames if frame[4]), None)
            return caller is not None and not _WRITES.search(f"{caller[2]} {caller[3]}")
    return False


def _input_stacks(samples: Samples, piece: Ints, candidates: Flags, computing: Flags) -> dict[int, bool]:
    """Whether each stack is of input: by itself, or as another line of a function that makes input.

    A function of the user's that reads or decodes also does the rest of the work on a sample. The functions of the
    training loop, which are on the stack while the calls of a step run too, are no such functions.
    """
    if not len(candidates):
        return dict.fromkeys(np.unique(samples.stack).tolist(), False)
    met = np.unique(samples.stack[(piece >= 0) & candidates[piece]])
    busy = np.unique(samples.stack[(piece >= 0) & computing[piece]])
    functions = {id: _own_functions(samples, id) for id in np.unique(np.concatenate([met, busy])).tolist()}
    loop = set().union(*(functions[id] for id in busy.tolist()))
    around = set().union(*(_on_stack(samples, id) for id in busy.tolist()))
    loops = around or None  # no sample met a step: nothing is known of its loop
    shown = {int(id): is_input(frames_of(samples.names, int(id)), loops) for id in np.unique(samples.stack)}
    making = set().union(*(functions[id] for id in met.tolist() if shown[id])) - loop
    return shown | {id: True for id in met.tolist() if functions[id] & making}


def _own_functions(samples: Samples, stack: int) -> set[tuple[str, str]]:
    frames = [frame for frame in frames_of(samples.names, stack) if frame[4]]
    # The outermost is the script itself, or where it starts.
    return {(str(frame[0]), str(frame[2])) for frame in frames[:-1]}


def divide_input(
    pieces: Pieces,
    candidates: Flags,
    computing: Flags,
    likely: Flags,
    account: Ints,
    gap: Ints,
    samples: Samples,
    piece: Ints,
) -> Divided:
    """Divide candidate pieces by the stack samples into input and the rest.

    Args:
        pieces: of the training thread.
        candidates: those that may hold input.
        computing: those in which the calls of a step run: they show the functions of the training loop.
        likely: those that a forward pass follows, or that are unusually long.
        account: account code of each piece.
        gap: group of each piece: those of one group lie between the same kinds of spans.
        samples: stack samples of the thread.
        piece: of each sample; -1 outside.
    """
    of_stack = _input_stacks(samples, piece, candidates, computing)
    shows = np.array([of_stack[id] for id in samples.stack.tolist()], bool)
    kind = gap * (int(account.max(initial=0)) + 1) + account
    if len(candidates):
        before = (piece >= 0) & (candidates & likely)[piece]
        in_step = (piece >= 0) & computing[piece]
        shows |= _makes_tensors(samples, before, in_step)
        shows |= _prepares_batch(samples, before, shows, in_step)
    return divide(pieces, candidates, kind, samples, piece, shows)


def _makes_tensors(samples: Samples, candidates: Flags, computing: Flags) -> Flags:
    """Samples of the user's lines that make tensors of lists and arrays, as they do for what the model is given.

    And of the other lines of a function that makes them, such as those that choose rows, but for the training loop's.
    """
    makers, making = set(), set()
    for id in np.unique(samples.stack[candidates]).tolist():
        frame = next((frame for frame in frames_of(samples.names, id) if frame[4]), None)
        if frame and _TENSORS.search(str(frame[3])):
            makers.add(id)
            making.add((str(frame[0]), str(frame[2])))
    making -= {function for id in np.unique(samples.stack[computing]).tolist() for function in _on_stack(samples, id)}
    for id in np.unique(samples.stack[candidates]).tolist() if making else ():
        if _own_functions(samples, id) & making:
            makers.add(id)
    return candidates & np.isin(samples.stack, list(makers))


def _on_stack(samples: Samples, stack: int) -> set[tuple[str, str]]:
    return {(str(frame[0]), str(frame[2])) for frame in frames_of(samples.names, stack)}


def _prepares_batch(samples: Samples, candidates: Flags, shows: Flags, computing: Flags) -> Flags:
    """Samples of lines that work on a batch which another line of their function has made: they belong to it.

    What a line gives that calls the model, as ``logits = policy(torch.from_numpy(state))``, is no batch.
    Pure Python keeps the interpreter lock for 5 ms, so that the sampler often meets code that makes a batch on the
    first line after it that gives the lock away.
    """
    assigned: dict[tuple[str, str], set[str]] = {}
    calls = {
        (file, line)
        for id in np.unique(samples.stack[computing]).tolist()
        for file, line, _function, _source, user in frames_of(samples.names, id)
        if user
    }
    for id in np.unique(samples.stack[candidates & shows]).tolist():
        for file, line, function, source, user in frames_of(samples.names, id):
            names = _ASSIGNED.match(str(source).strip()) if user and (file, line) not in calls else None
            if names:
                assigned.setdefault((file, function), set()).update(_NAME.findall(names[1]))
    found = np.zeros(len(samples), bool)
    for id in np.unique(samples.stack[candidates & ~shows]).tolist():
        frame = next((frame for frame in frames_of(samples.names, id) if frame[4]), None)
        if frame and assigned.get((frame[0], frame[2]), set()) & set(_NAME.findall(str(frame[3]))):
            found |= samples.stack == id
    return found & candidates
