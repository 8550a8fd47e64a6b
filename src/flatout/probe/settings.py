"""The settings that can be injected into an unmodified training, each declared once, here.

The command line reads their names, types and help; trials, the users' names for them and the value to try after
running out of memory; predictions, their costs; the probe, the module of ``injections`` that sets them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

MOST = 2**63 - 1  # of a number
DEFAULT_PREFETCH_FACTOR = 2  # torch's default for a DataLoader with workers

# FILE:FUNCTION:N, a function by its qualified name, as in train.py:Journal.write:10; several with commas.
_FUNCTION = r"[^:,]+\.py:\w+(\.\w+)*"
_FUNCTIONS = "%s(,%s)*" % (_FUNCTION, _FUNCTION)
_CALLS = r"%s:[1-9]\d*(,%s:[1-9]\d*)*" % (_FUNCTION, _FUNCTION)


class Setting(NamedTuple):
    """One setting.

    Attributes:
        type: of its value: int, float, bool or str.
        help: a line for ``--list`` and for messages.
        injector: the module of ``injections`` that sets it; None: it can only be changed where the user has it.
        at_start: set in every Python process, also in those that never import torch.
        keyword: a keyword argument of DataLoader has this name.
        recorded: the record has its value under this name, so that a changed config can be checked.
        aliases: names that users give it, in lower case with ``_``.
        multiplies: it is a factor on the user's own value, which has this type; None: it replaces it.
        least: smallest int that makes sense.
        most: the largest one.
        exact: where runs repeat themselves, the losses have to stay the same bit for bit.
        choices: of a str, its values; empty: any.
        several: its value may be several of them, with commas.
        form: of a str, the regular expression of the whole; empty: any.
        default: the value in a training that does not set it.
        halved: after a run out of memory, the value half way to the present one is tried.
        follows: when that setting is halved, this one is scaled with it.
        in_queue: the DataLoader's queue, in host memory and /dev/shm, grows with it.
        in_step: what a step holds in GPU memory grows with it.
        warm_up_s: that the first steps may take longer, once in a run.
        warm_up_steps: that are slow for it.
        instead_of: the setting that does the same in another way: one of the two is enough.
        live: it can be switched in a running training, at a step or between passes.
        beside_steps: it may gain where blocks of steps do not look, as in validations.
        device_memory_known: False: it changes what lies in GPU memory by an amount that one run does not show.
    """

    type: Any
    help: str
    injector: Optional[str]
    at_start: bool = False
    keyword: bool = False
    recorded: bool = False
    aliases: "tuple[str, ...]" = ()
    multiplies: Any = None
    least: int = 1
    most: int = MOST
    exact: bool = False
    choices: "tuple[str, ...]" = ()
    several: bool = False
    form: str = ""
    default: int = 0
    halved: bool = False
    follows: Optional[str] = None
    in_queue: bool = False
    in_step: bool = False
    warm_up_s: float = 0.0
    warm_up_steps: int = 0
    device_memory_known: bool = True
    instead_of: Optional[str] = None
    live: bool = False
    beside_steps: bool = False


# In the order in which they are set: the number of workers comes before what only workers have.
SETTINGS: "dict[str, Setting]" = {
    "num_workers": Setting(
        int,
        "worker processes of the training's DataLoader",
        "loader",
        keyword=True,
        recorded=True,
        aliases=("num_workers", "workers", "n_workers", "nworkers", "dataloader_num_workers", "loader_workers", "j"),
        least=0,
        most=4096,
        halved=True,
        in_queue=True,
        live=True,
    ),
    "prefetch_factor": Setting(
        int,
        "batches that each worker prepares ahead",
        "loader",
        keyword=True,
        recorded=True,
        aliases=("prefetch_factor", "prefetch", "dataloader_prefetch_factor"),
        default=DEFAULT_PREFETCH_FACTOR,
        most=65_536,
        halved=True,
        in_queue=True,
        live=True,
    ),
    "persistent_workers": Setting(
        bool,
        "keep workers from pass to pass",
        "loader",
        keyword=True,
        recorded=True,
        aliases=("persistent_workers", "dataloader_persistent_workers"),
        live=True,
    ),
    "validation_workers_kept": Setting(
        bool, "keep the workers of the validation's DataLoaders from pass to pass", "loader", beside_steps=True
    ),
    "pin_memory": Setting(
        bool,
        "batches in pinned memory",
        "loader",
        keyword=True,
        recorded=True,
        aliases=("pin_memory", "pin_mem", "dataloader_pin_memory"),
        live=True,
    ),
    "non_blocking": Setting(bool, "copies from pinned memory to the GPU do not wait", "copies", live=True),
    "in_order": Setting(
        bool, "batches in the order of their indices", "loader", keyword=True, recorded=True, live=True
    ),
    "worker_threads": Setting(int, "threads that libraries use in each worker", "loader", live=True, most=4096),
    "start_method": Setting(
        str,
        "of workers: fork, spawn or forkserver",
        "loader",
        recorded=True,
        live=True,
        choices=("fork", "spawn", "forkserver"),
    ),
    "batch_size": Setting(
        int,
        "samples in a batch",
        "loader",
        keyword=True,
        recorded=True,
        aliases=("batch_size", "train_batch_size", "per_device_train_batch_size", "batchsize"),
        default=1,
        halved=True,
        in_queue=True,
        in_step=True,
    ),
    "lr_factor": Setting(
        float,
        "factor on the learning rates",
        "optimizer",
        aliases=("lr", "learning_rate", "base_lr"),
        multiplies=float,
        follows="batch_size",
    ),
    "accumulate": Setting(
        int,
        "backward passes for each step of the optimizer",
        "optimizer",
        aliases=("accumulate_steps", "accumulate", "accumulate_grad_batches", "gradient_accumulation_steps"),
        multiplies=int,
    ),
    "autocast": Setting(
        str,
        "precision of the forward pass: bf16 or fp16",
        "model",
        device_memory_known=False,
        choices=("bf16", "fp16"),
        live=True,
    ),
    "threads": Setting(int, "intra-op threads of the training process", "backends", live=True, most=4096),
    "tf32": Setting(bool, "TF32 in float32 matrix products", "backends", live=True),
    "float32": Setting(bool, "compute what is float64 in float32", "single_precision", device_memory_known=False),
    "channels_last": Setting(bool, "memory format of models and batches", "model", device_memory_known=False),
    "compile": Setting(
        str,
        "torch.compile: default, reduce-overhead, max-autotune or max-autotune-no-cudagraphs",
        "model",
        choices=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
        warm_up_s=120.0,
        warm_up_steps=10,
        device_memory_known=False,
    ),
    "optimizer_form": Setting(
        str, "fused or foreach", "optimizer", device_memory_known=False, choices=("fused", "foreach")
    ),
    "cudnn_benchmark": Setting(bool, "cuDNN tries its algorithms", "backends", device_memory_known=False, live=True),
    "jpeg_short_side": Setting(int, "decode JPEGs at a scale that leaves this short side", "files"),
    "crop_first": Setting(bool, "cut pictures to their final size before colours are changed", "transforms"),
    "late_normalize": Setting(
        bool,
        "pictures stay uint8 until their batch is complete; the GPU converts and normalizes them",
        "late_normalize",
    ),
    "samples_once": Setting(
        bool,
        "keep whole samples of data sets that give the same each time, in the same memory",
        "samples_once",
        exact=True,
    ),
    "samples_at_once": Setting(
        bool,
        "ask data sets that index arrays or tensors for a whole batch with one index",
        "samples_at_once",
        exact=True,
    ),
    "trim_padding": Setting(
        str,
        "mask, lengths or PLACE=VALUE, what shows the padding: end batches with their longest row",
        "trimmed_batches",
        form=r"mask|lengths|[\w.]*=-?\d{1,18}",
    ),
    "file_cache_bytes": Setting(int, "bytes of picture files that each process keeps in memory", "files"),
    "chunk_cache_bytes": Setting(
        int, "bytes of unpacked chunks that each process keeps of an HDF5 data set", "chunk_cache"
    ),
    "table_cache_bytes": Setting(
        int, "bytes of parsed tables (pandas, pyarrow) that each process keeps", "parsed_tables"
    ),
    "sample_cache_bytes": Setting(
        int, "bytes of decoded files, or prepared items of MONAI, that all processes keep in shared memory", "decoded"
    ),
    "memoize": Setting(
        str,
        "FILE:FUNCTION,...: keep what functions that make samples return, in the memory of sample_cache_bytes",
        "memoized_calls",
        several=True,
        exact=True,
        form=_FUNCTIONS,
    ),
    "features_once": Setting(
        str,
        "CLASS.PATH of a module that does not train: keep what it gives for a sample, in the same memory",
        "features_once",
        form=r"\w+(\.\w+)*",
    ),
    "mapped_arrays": Setting(bool, "map arrays that samples read whole: what they do not use is not read", "mapped"),
    "read_from": Setting(str, "REAL=COPY: read below one folder from a copy of it", "staged", form="[^=]+=.+"),
    "read_through": Setting(
        str,
        "REAL=CACHE:BYTES: keep what is read below one folder on another disk",
        "cached",
        at_start=True,
        form=r"[^=]+=.+:\d+",
    ),
    "checkpoint_beside": Setting(bool, "write checkpoints in a thread", "writing", live=True),
    "checkpoint_every": Setting(
        int, "write checkpoint files that are there already every n-th time", "writing", live=True
    ),
    "log_every": Setting(
        int,
        "write every n-th metric",
        "writing",
        aliases=("log_every_n_steps", "logging_steps", "log_every", "log_interval", "print_freq"),
        multiplies=int,
        live=True,
    ),
    "metrics_unsynced": Setting(bool, "do not wait until the disk has metric files (fsync)", "writing", live=True),
    "call_every": Setting(
        str,
        "FILE:FUNCTION:N,...: run a function that only reports in every N-th step that calls it, N from 1",
        "throttled_calls",
        several=True,
        exact=True,
        form=_CALLS,
        live=True,
        beside_steps=True,
    ),
    "lazy_scalars": Setting(bool, "read .item() from the GPU only when it is looked at", "scalars", live=True),
    "sparse_embeddings": Setting(
        bool, "gradients of large embedding tables hold the batch's rows only, with plain SGD", "sparse_embeddings"
    ),
    "sparse_adam": Setting(
        bool, "Adam updates those rows of large embedding tables that a batch takes, and no others", "sparse_adam"
    ),
    "used_gradients": Setting(
        bool, "backward passes leave out gradients in no optimizer, until other code reads them", "used_gradients"
    ),
    "kept_gradients": Setting(
        bool, "backward passes leave out gradients that are set to zero before they are used", "kept_gradients"
    ),
    "quick_dropout": Setting(
        bool, "draw the masks of dropout from fewer random bits, on the CPU", "quick_functions", live=True
    ),
    "quick_bce": Setting(
        bool, "binary cross-entropy of probabilities with vector logarithms, on the CPU", "quick_functions", live=True
    ),
    "quick_conv": Setting(
        bool,
        "compute convolutions of one channel that are as wide as their input in one dimension",
        "quick_functions",
        live=True,
    ),
    "quick_cosine": Setting(
        bool,
        "compute cosines of all pairs, made by broadcasting, as a product of matrices",
        "quick_functions",
        live=True,
    ),
    "csr_products": Setting(
        bool, "multiply by sparse matrices row by row (CSR), not by coordinates (COO)", "csr_products", live=True
    ),
    "fused_functions": Setting(
        str,
        "FILE:FUNCTION,...: call the function of torch's that gives the same, such as gelu or layer_norm",
        "fused_functions",
        several=True,
        form=_FUNCTIONS,
        live=True,
    ),
    "activations_kept": Setting(
        bool, "keep activations in memory: activation checkpointing computes none again", "activations", live=True
    ),
    "debugging_off": Setting(
        str,
        "NAME,...: anomaly_mode, tracemalloc, backward_threads, validate_args or deterministic",
        "debugging",
        choices=("anomaly_mode", "tracemalloc", "backward_threads", "validate_args", "deterministic"),
        several=True,
        live=True,
    ),
    "memory_kept": Setting(
        bool, "freed memory stays in the process, not given back to the kernel", "allocator", at_start=True
    ),
    "huge_pages": Setting(
        bool, "tensors of 2 MiB or more lie in huge pages", "allocator", at_start=True, instead_of="memory_kept"
    ),
    "collect_seldom": Setting(bool, "collect Python's garbage seldom", "debugging", live=True),
    "switch_interval_us": Setting(
        int,
        "µs after which a Python thread gives the interpreter lock to one that waits",
        "backends",
        most=10_000_000,
        live=True,
    ),
    "validation_factor": Setting(
        float,
        "factor on the steps or epochs between validations",
        None,
        aliases=(
            "check_val_every_n_epoch",
            "eval_every",
            "val_every",
            "validate_every",
            "eval_interval",
            "val_interval",
            "eval_steps",
        ),
        multiplies=int,
    ),
}


def injected_by(module: str) -> "tuple[str, ...]":
    """Names of the settings that a module of ``injections`` sets, in order."""
    return tuple(name for name, setting in SETTINGS.items() if setting.injector == module)


def combined(*given: "Mapping[str, Any]") -> "dict[str, Any]":
    """Several settings as one. Later values win, but where a setting takes several values it gets those of all."""
    found: dict[str, Any] = {}
    for settings in given:
        for name, value in settings.items():
            if name in SETTINGS and SETTINGS[name].several and found.get(name):
                parts = {_what(part): part for part in ("%s,%s" % (found[name], value)).split(",")}
                value = ",".join(parts.values())
            found[name] = value
    return found


def _what(part: str) -> str:
    """A value without the number behind it: FILE:FUNCTION:N takes the place of another N."""
    head, _, number = part.rpartition(":")
    return head if number.isdigit() else part
