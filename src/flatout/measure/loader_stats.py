"""Measurements of the training's DataLoader, as causes and predictions read them. None: not measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flatout.measure.input_functions import InputFunction
from flatout.measure.slow_samples import SlowSamples
from flatout.measure.thresholds import DOMINANT_SHARE
from flatout.results import Line

Seconds = NDArray[np.float64]

_SLOW = 3.0  # times a usual fetch
_DATABASES = ("sqlite3", "sqlalchemy", "peewee", "duckdb", "apsw")
_SEARCHES = re.compile(r"\.(execute\w*|fetch(one|many|all)|query|sql)\(|\bread_sql")


def mean_s(seconds: Seconds | None) -> float:
    """Mean of measured seconds; 0.0 if empty."""
    return float(np.mean(seconds)) if seconds is not None and len(seconds) else 0.0


@dataclass(frozen=True)
class TransformCost:
    """One part of the samples' transform pipeline, as measured on single samples."""

    name: str
    mean_s: float  # of a call
    pixels_in: float  # mean; 0: not a picture
    pixels_out: float
    calls: float = 1.0  # a sample
    repeats: bool = False  # MONAI says that it makes the same of an item each time


@dataclass(frozen=True)
class LoaderSettings:
    """Settings of the DataLoader."""

    num_workers: int
    batch_size: int | None
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory: bool
    start_method: str | None
    site: str  # file:line where the loader is iterated
    dataset_len: int | None = None  # samples of a pass
    drop_last: bool = False  # a last batch that is not full is left out
    in_order: bool = True
    rebuilt: bool = False  # the DataLoader itself is made anew, usually for each pass
    collates: bool = False  # batches are made of single samples, by torch's default_collate


@dataclass(frozen=True)
class FetchTimes:
    """Seconds of fetches, one entry a batch in the order of the batches; with 0 workers, of the training process."""

    wall_s: Seconds  # collate included
    cpu_s: Seconds | None  # the fetching thread on a core
    runqueue_s: Seconds | None  # the fetching thread ready, but waiting for a core
    blocked_s: Seconds | None  # the rest: I/O, network, locks
    process_cpu_s: Seconds | None  # all threads of the worker during the fetch
    collate_s: Seconds
    item_s: Seconds  # dataset[i], one entry a timed sample
    transforms: tuple[TransformCost, ...]  # in pipeline order; empty: none of torchvision's or MONAI's was seen
    slow: SlowSamples | None = None  # a few that cost much more than the others


@dataclass(frozen=True)
class Delivery:
    """Batches on their way from the fetch to the training."""

    batches: int
    samples: int
    batch_bytes: int | None
    epochs_started: int  # passes over the loader that began inside the window
    wait_s: Seconds  # the training process waiting, one entry a step
    whole_step_s: Seconds  # from step to step, wait included
    serialize_s: Seconds  # pickling and copying to shared memory, feeder thread
    deserialize_s: Seconds  # in the training process, inside the wait
    pickled_bytes: float = 0.0  # of a batch, through the pipe: tensors go through shared memory and count little
    head_of_line_s: float | None = None  # waited for a batch while a later one was ready
    mean_ready: float | None = None  # batches that were ready when the next one was asked for
    sampling_s: float = 0.0  # without workers: the first waits of passes, less the fetches in them
    indices_s: float = 0.0  # the sampler, in waits: for each batch of a pass but the first
    indices_ahead_s: float = 0.0  # the same while a pass begins, for the batches that workers make ahead
    passes_before: int = 1  # over the loader, that began before the window
    steps_of_pass: int | None = None  # by the loader's settings
    layout: tuple[str, ...] = ()  # of the first tensors of a batch: "float32 [2, 1, 64, 64, 64]"


@dataclass(frozen=True)
class FirstFetch:
    """The first fetch of each worker that was started in the window, or of each pass in a worker that lives on.

    It may open and read what later ones have.
    """

    usual_s: float = 0.0  # median of all fetches
    mean_s: float = 0.0  # of the first ones
    waited_s: float = 0.0  # of the window, in which the training waited for them, a usual fetch left out
    part: float = 0.0  # of the time of all fetches, that they take beyond a usual one

    @property
    def slow(self) -> bool:
        """They take several times as long as a usual one."""
        return self.mean_s >= _SLOW * self.usual_s > 0


@dataclass(frozen=True)
class WorkerLives:
    """The worker processes."""

    idle_share: float | None  # of their time in the window: waiting for indices
    start_s: Seconds  # process creation to ready, one entry a worker started in the run
    starts_in_window: int
    set_up_s: Seconds | None = None  # of each start: in the worker's loop before work, worker_init_fn included
    first_fetch: FirstFetch = FirstFetch()
    pass_first_fetch: FirstFetch = FirstFetch()  # without that of a new worker


@dataclass(frozen=True)
class ArrayReads:
    """Arrays that libraries read out of files for a sample; small ones (below 65,536 values) do not count."""

    package: str  # that read most of the bytes
    values: float  # of a sample's arrays
    bytes: float
    seconds: float  # in the readers: opening excluded, unpacking included
    calls: float
    volumes: bool  # most of the bytes are of arrays with three sides of 8 or more


@dataclass(frozen=True)
class StorageReads:
    """Reads for the samples: how much, from where, and the time spent waiting for them."""

    bytes_read_per_sample: float | None
    uncached_bytes_per_sample: float | None  # of these, from storage rather than from memory
    mounts: dict[str, float]  # "mount point (kind)" -> share of the files opened or sampled
    peers: tuple[str, ...]
    files_per_sample: float | None = None  # opened
    opens_per_file: float | None = None  # by one process, over the whole record; None: not counted
    files: int = 0  # that the processes opened, those of each counted by themselves
    client: str | None = None  # the client library with most of the blocked time; None: none, or a file system
    data_folder: str | None = None  # the folder of the files that are read; None: no file was seen, or only / holds all
    extensions: Mapping[str, int] = field(default_factory=dict)  # of the files opened, in lower case -> files
    file_cold_s: float | None = None  # wait for a file in passes that storage delivered
    file_warm_s: float | None = None  # and in those that memory delivered
    arrays: ArrayReads | None = None  # None: no large array was seen to be read by a known library


@dataclass(frozen=True)
class FunctionShares:
    """Shares of the functions in which the fetching threads compute and wait, from stack samples."""

    cpu_groups: dict[str, float]  # function group -> share of on-CPU fetch time, adds up to 1
    blocked_groups: dict[str, float]  # function group -> share of blocked fetch time
    cpu_lines: tuple[Line, ...]
    blocked_lines: tuple[Line, ...]
    lines_of_group: Mapping[str, tuple[Line, ...]] = field(default_factory=dict)  # on a core
    packages: Mapping[str, str] = field(default_factory=dict)  # group -> the package with most of its time on a core
    collate_groups: Mapping[str, float] = field(default_factory=dict)  # as cpu_groups, of collating
    called: tuple[InputFunction, ...] = ()  # the user's own on the stacks, the outermost first

    @property
    def searches_database(self) -> bool:
        """What reads on a core is a query."""
        lines = self.lines_of_group.get("read", ())
        return self.packages.get("read") in _DATABASES or any(_SEARCHES.search(line.source) for line in lines)

    @property
    def mostly_searches(self) -> bool:
        """Queries take most of the fetches' time on a core."""
        return self.searches_database and self.cpu_groups.get("read", 0.0) >= DOMINANT_SHARE


@dataclass(frozen=True)
class LoaderStats:
    """The training's DataLoader within the ledger's window (start-up and first step excluded)."""

    settings: LoaderSettings
    fetch: FetchTimes
    delivery: Delivery
    workers: WorkerLives
    storage: StorageReads
    functions: FunctionShares
    not_measured: tuple[str, ...]  # one sentence each

    @property
    def restarts_workers(self) -> bool:
        """Workers were started anew in the window, since the DataLoader keeps none."""
        settings = self.settings
        return settings.num_workers > 0 and not settings.persistent_workers and self.workers.starts_in_window > 0
