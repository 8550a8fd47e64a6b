"""Event kinds and their fixed-width layout: the contract between the probe and every reader.

One event is 40 bytes, little-endian, ``<HHIqqqq``: kind, thread, arg, start, duration, a, b.
Times are nanoseconds of CLOCK_MONOTONIC, which all processes of one machine share.
``arg`` is an id in the names file of the same process unless its kind says otherwise.
Numbers are never reused: docs/record-format.md is the published description.
"""

import struct

FORMAT_VERSION = 1
MAGIC = b"FLATOUT1"
HEADER_BYTES = 4096
EVENT = struct.Struct("<HHIqqqq")
# Header: magic, format version, event size, pid, (monotonic ns, wall-clock ns) read together.
HEADER = struct.Struct("<8sIIqqq")
# Live counters, rewritten in place at LIVE_OFFSET for progress while the run is on:
# iterations, backwards, optimizer steps, nanoseconds waited for batches, start of the first
# step (ns), end of the latest step (ns), events lost (disk full), flags (TRACED, FAILED).
LIVE_OFFSET = 256
LIVE = struct.Struct("<8q")
# The kernel trace is written; the probe failed in this process and has stopped recording; the experiments are over;
# the steps with kept batches are over; the blocks of a live trial are over.
TRACED, FAILED, EXPERIMENTED, REPLAYED, SWITCHED = 1, 2, 4, 8, 16

# Spans of a training process.
BATCH_WAIT = 1  # arg loader; a batch index in the epoch; b see batch_bits()
ITER_START = 2  # arg loader; DataLoader.__iter__; a how often this loader was iterated before
ITER_END = 3  # arg loader; shutting workers down (instant when there is nothing to shut down)
H2D = 4  # arg site; a bytes; b 1 when pinned and non_blocking
BLOCKING_READ = 5  # arg site; a name id of the operation ("item", "cpu", "synchronize", ...)
FORWARD = 6  # arg module; a 1 when gradients were enabled; b EVALUATES, TRAINS or HAS_TRAINED
BACKWARD = 7
OPTIMIZER = 8  # arg optimizer class, or the name of another update ("clip_grad_norm_")
ZERO_GRAD = 9
CHECKPOINT = 10  # arg path; a bytes written
VALIDATION = 11  # arg which framework hook saw it
LOG = 12  # arg sink ("print", "logging", "tensorboard", ...)
COMPILE = 13  # arg what was compiled: a compilation, or a text
IMPORT = 14  # arg module
MODE = 15  # instant; arg 1 for train(), 0 for eval(); a module name id
DESERIALIZE = 16  # unpickling one batch from a worker, inside BATCH_WAIT; a bytes
COLLECTIVE = 17  # arg operation
METRIC = 18  # instant; arg name; a the bits of a float64
INPUT = 19  # instant, at the start of a training FORWARD; arg module; a samples. Not where a DataLoader has given a
# batch, and no backward pass has followed it
DEVICE_SPAN = 20  # arg one of the kinds above; device time mapped to the host's clock
# After the measured window, when flatout asks for it: blocks of steps with one thing changed, and unchanged ones.
EXPERIMENT = 21  # a block; arg what is changed in it, 0 nothing; a steps; b ns of the steps' own part, waits excluded
HOOK = 22  # same start and duration as its EXPERIMENT; arg site of the hook; a ns in its calls; b calls
COLLECTION = 23  # same start and duration; Python's garbage collector: a ns in it; b collections
SAMPLING = 24  # the sampler choosing a batch's indices, inside BATCH_WAIT or ITER_START; a batch index in the epoch
LIVE_BLOCK = (
    25  # of a live trial: a part of a block that counts; arg number of the block; a samples; b see block_bits()
)
STACK = 30  # instant; arg stack; thread is the sampled one; a ns since its previous sample;
# b the kernel's state letter of that thread as a number (ord('R') on a core or ready, 'S' and
# 'D' blocked), 0 when it could not be read
LOCK = 31  # from the previous stack sample of the training thread to this one, where other Python threads exist;
# arg stack of the other thread that computed most (0: none did); a ns in which the training thread was neither on a
# core nor ready for one; b bits 0-1 what it does now, seen with the interpreter lock held (0 runs, 1 waits for the
# lock, 2 is blocked elsewhere, 3 unknown), from 2 CPU ns of the other Python threads

# Spans of a worker process (FETCH* and ITEM also in the main process when num_workers is 0).
INDEX_WAIT = 40  # waiting for the next indices
FETCH = 41  # a batch index; b samples; arg loader when a thread of the training process fetches
FETCH_SCHED = 42  # same start and duration as its FETCH; a on-CPU ns; b run-queue ns
FETCH_IO = 43  # same start and duration; arg read calls; a bytes read; b bytes from storage
FETCH_PROCESS = 44  # same start and duration; a CPU ns of all threads; b major page faults
ITEM = 45  # dataset[i] or next(dataset); a index or -1
COLLATE = 46
PUT = 47  # a batch index; handing the batch to the queue
SERIALIZE = 48  # pickling in the queue's feeder thread; a bytes
TRANSFORM = 51  # one part of a sample's pipeline: arg class; a pixels in; b see transform_bits(). Of MONAI's: arg
# OF_MONAI and the class; a MAKES_THE_SAME if it is not random, else 0
ARRAY_READ = 52  # a library read an array of 65,536 values or more: arg package; a values; b see array_bits()
WORKER_START = 50  # process creation to ready; a worker id; b ns in the worker's set-up, worker_init_fn included

LEAST_SIDE = 8  # of an array: a shorter side holds channels or classes, not space

KIND_NAMES = {
    value: name
    for name, value in list(globals().items())
    if name.isupper()
    and isinstance(value, int)
    and name not in ("FORMAT_VERSION", "HEADER_BYTES", "LIVE_OFFSET", "LEAST_SIDE")
}


# b of FORWARD. HAS_TRAINED: it evaluates, but earlier calls of this very module trained it.
EVALUATES, TRAINS, HAS_TRAINED = 0, 1, 2
OF_MONAI, MAKES_THE_SAME = "monai.", -1  # of TRANSFORM


def batch_bits(samples: int, worker: int, ready: int, grad: bool) -> int:
    """Pack what BATCH_WAIT carries in ``b``.

    Bits 0-31 samples in the batch, 32-47 worker id + 1 (0: unknown or no worker),
    48-61 batches that were ready when the wait began, 62 gradients enabled.
    """
    return (samples & 0xFFFFFFFF) | ((worker + 1) << 32) | (min(ready, 0x3FFF) << 48) | (int(grad) << 62)


def block_bits(batches: int, ready_at_begin: int = 0, ready_at_end: int = 0) -> int:
    """Pack what LIVE_BLOCK carries in ``b``.

    Bits 0-31 batches, 32-46 batches that were ready when it began, 47-61 when it ended.
    """
    return (batches & 0xFFFFFFFF) | (min(ready_at_begin, 0x7FFF) << 32) | (min(ready_at_end, 0x7FFF) << 47)


def transform_bits(pixels: int, place: int) -> int:
    """Pack what TRANSFORM carries in ``b``: bits 0-47 pixels that come out, from 48 the place in the pipeline."""
    return pixels | place << 48


def array_bits(size: int, sides: int) -> int:
    """Pack what ARRAY_READ carries in ``b``: bits 0-47 bytes, from 48 its sides of LEAST_SIDE or more."""
    return size | sides << 48
