"""What the training loader's side of a run did: the plain numbers that causes and predictions read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flatout.results import Line

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class TransformCost:
    """One part of the samples' transform pipeline, as measured on single samples."""

    name: str
    mean_s: float  # of a call
    pixels_in: float  # mean; 0: not a picture
    pixels_out: float
    calls: float = 1.0  # a sample


@dataclass(frozen=True)
class LoaderStats:
    """The training loader within the ledger's window (start-up and first step excluded).

    Arrays hold one entry a batch, in seconds, unless said otherwise; those of fetches in the order of the batches.
    None: not measured.
    With ``num_workers`` 0 the fetch arrays come from the main process.
    """

    num_workers: int
    batch_size: int | None
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory: bool
    iterable: bool
    start_method: str | None
    dataset: str
    site: str  # file:line where the loader is iterated
    batch_bytes: int | None
    batches: int
    samples: int
    epochs_started: int  # passes over the loader that began inside the window
    wait_s: Seconds  # the main process waiting, one entry a step
    step_s: Seconds  # whole step, wait included
    fetch_s: Seconds  # wall time of one batch's fetch in its worker, collate included
    fetch_cpu_s: Seconds | None  # the fetch thread on a core
    fetch_runqueue_s: Seconds | None  # the fetch thread ready, but waiting for a core
    fetch_blocked_s: Seconds | None  # the rest: I/O, network, locks
    fetch_process_cpu_s: Seconds | None  # all threads of the worker during the fetch
    collate_s: Seconds
    serialize_s: Seconds  # pickling and copying to shared memory, feeder thread
    deserialize_s: Seconds  # main process, inside the wait
    item_s: Seconds  # dataset[i], one entry a timed sample
    worker_idle_share: float | None  # of the workers' time in the window: waiting for indices
    worker_start_s: Seconds  # process creation to ready, one entry a worker started in the run
    worker_starts_in_window: int
    bytes_read_per_sample: float | None
    storage_bytes_per_sample: float | None
    transforms: tuple[TransformCost, ...]  # in pipeline order; empty: no torchvision pipeline was seen
    cpu_groups: dict[str, float]  # function group -> share of on-CPU fetch time, adds up to 1
    blocked_groups: dict[str, float]  # function group -> share of blocked fetch time
    cpu_lines: tuple[Line, ...]
    blocked_lines: tuple[Line, ...]
    mounts: dict[str, float]  # "mount point (kind)" -> share of the files opened or sampled
    peers: tuple[str, ...]
    not_measured: tuple[str, ...]
    head_of_line_s: float | None = None  # waited for a batch while a later one was made already
    mean_ready: float | None = None  # batches that were ready when the next one was asked for
    files_per_sample: float | None = None  # opened
    sampling_s: float = 0.0  # without workers: the first waits of passes, less the fetches in them
    in_order: bool = True
    pickled_bytes: float = 0.0  # of a batch, through the pipe: tensors go through shared memory and count little
    client: str | None = None  # the library that most of the blocked time is in; None: none, or a file system
    data_folder: str | None = None  # that what is read lies below; None: no file was seen
    dataset_len: int | None = None  # samples of a pass
    file_cold_s: float | None = None  # a file is waited for in passes that storage delivered
    file_warm_s: float | None = None  # and in those that memory delivered
    rebuilt: bool = False  # the DataLoader itself is made anew, usually for each pass
