"""The parts of a fetch that a remedy can remove, as changes of the rate model's inputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

from flatout.measure.array_reads import patch_shape, sample_values
from flatout.measure.functions import STORAGE_GROUPS
from flatout.measure.loader_stats import LoaderStats, TransformCost, mean_s
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.slow_samples import SlowSamples
from flatout.measure.thresholds import DOMINANT_SHARE, MATERIAL_SHARE
from flatout.predict.mean_costs import PIPE_BYTES_PER_S
from flatout.predict.pipeline import Change
from flatout.predict.rate_model import RateModel

# Groups of ``FunctionShares``.
DECODE_GROUPS = ("decode", "decompress")
TABLE_PACKAGES = ("pandas", "pyarrow")  # whose readers ``probe.injections.parsed_tables`` answers
# Parsers of whole files into Python objects, as ``measure.functions`` names them.
_TEXT = ("json", "ujson", "orjson", "simplejson", "yaml", "tomllib", "csv", "xml", "ET", "etree", "ElementTree", "lxml")
TEXT_PACKAGES = (*_TEXT, "msgpack", "pickle", "ast")
LOOKUP_GROUPS = ("lookup",)
TOKENISE_GROUPS = ("tokenise",)
READ_GROUPS = ("read",)
# Whatever else a data set computes for a sample is its own preparation.
TRANSFORM_GROUPS = ("transform", "convert", "other")
# Compressed files are smaller than the decoded samples, float data as large. Four times as much is excessive.
AMPLIFIED = 4.0  # bytes read for each byte that a sample keeps
_CUT = 16.0  # values of an array for each one of a sample: four times as long on each side
PICTURES = "PIL"  # the package whose arrays are pictures
_SHRUNK = 4.0  # times as many pixels before a transform as after it
# Computing that grows with the bytes read. Decoders are another cause: pictures are larger than their files.
UNPACKING_GROUPS = ("read", "decompress")
# Least rate at which one core copies into fresh shared memory, whose pages are allocated meanwhile.
COPY_BYTES_PER_S = 3e8
# Smaller batches take as long to hand over as empty ones: waking the process takes the time, not the bytes.
LARGE_BATCH = 1 << 20
# Times that a process has opened each file: fewer may be files that only a few samples need.
_OPENED_AGAIN = 1.5
# Times that a process has opened each file in a pass: as often, what each call makes of it repeats before the next one.
_OPENED_OFTEN = 4.0
# Files of one sample of a stream: fewer may be a picture with its mask or its labels.
_THROWN_AWAY = 4.0
# Threads that compute in a worker besides the one that fetches; fewer are measurement noise.
SEVERAL_THREADS = 1.5


def reads_again(loader: LoaderStats) -> bool:
    """True if files were read more than once: in a second pass, or in one that has no end."""
    return loader.delivery.epochs_started >= 1 or (loader.storage.opens_per_file or 1.0) >= _OPENED_AGAIN


def repeats_within_pass(loader: LoaderStats) -> bool:
    """True if many samples of a pass were made of the same file."""
    passes = max(loader.delivery.passes_before + loader.delivery.epochs_started, 1)
    return (loader.storage.opens_per_file or 1.0) / passes >= _OPENED_OFTEN


def in_first_pass(loader: LoaderStats) -> bool:
    """True if no sample was made twice: the first pass over a data set of known length was not over."""
    once = loader.delivery.passes_before <= 1 and not loader.delivery.epochs_started
    return once and loader.delivery.samples < (loader.settings.dataset_len or 0)


def files_thrown_away(loader: LoaderStats) -> float | None:
    """Files that a stream opens for each sample that it gives; None: few, or a data set that has a length."""
    files = loader.storage.files_per_sample
    return files if loader.settings.dataset_len is None and files and files >= _THROWN_AWAY else None


def samples_there_are(loader: LoaderStats) -> float | None:
    """Samples of the data set, or of the files that a stream goes round; None: not known."""
    if loader.settings.dataset_len:
        return loader.settings.dataset_len
    each = loader.storage.files_per_sample
    return loader.storage.files / each if each and reads_again(loader) else None


def same_beginning(loader: LoaderStats) -> list[TransformCost]:
    """The transforms before the first one that MONAI calls random; empty: the pipeline is not MONAI's."""
    return list(itertools.takewhile(lambda part: part.repeats, loader.fetch.transforms))


def collate_share(loader: LoaderStats) -> float:
    """Part of a fetch that puts its samples together, 0..1."""
    fetch_s = mean_s(loader.fetch.wall_s)
    return min(mean_s(loader.fetch.collate_s) / fetch_s, 1.0) if fetch_s > 0 else 0.0


def helped(loader: LoaderStats) -> bool:
    """True if blocked fetches mostly wait for other threads of their worker, which compute for them.

    Libraries such as pyarrow and blosc decompress in their own threads; the fetching thread waits for these.
    """
    if loader.fetch.process_cpu_s is None or loader.fetch.cpu_s is None or loader.fetch.blocked_s is None:
        return False
    blocked_s = mean_s(loader.fetch.blocked_s)
    if blocked_s < MATERIAL_SHARE * mean_s(loader.fetch.wall_s):
        return False  # the thread that sends the batch before computes as well
    return mean_s(loader.fetch.process_cpu_s) - mean_s(loader.fetch.cpu_s) >= DOMINANT_SHARE * blocked_s


def storage_share(loader: LoaderStats) -> float:
    """Share of the blocked time that waits for bytes."""
    return group_share(loader.functions.blocked_groups, ("read", "network") if helped(loader) else STORAGE_GROUPS)


def cpu_share(loader: LoaderStats, groups: Iterable[str]) -> float:
    """Share of a fetch's CPU time in these groups, 0..1. Of what a collate does, only tokenising counts."""
    wanted = tuple(groups)
    collate = collate_share(loader)
    inside = group_share(loader.functions.collate_groups, set(wanted) & set(TOKENISE_GROUPS))
    return group_share(loader.functions.cpu_groups, wanted) * (1.0 - collate) + inside * collate


def without_groups(loader: LoaderStats, groups: Iterable[str], part: float = 1.0) -> Change:
    """The change of taking ``part`` of what these groups of functions compute off the fetches.

    Groups are of the fetch without its collate. Where other threads of the worker compute for it, blocked time in
    these groups is theirs.
    """
    wanted = tuple(groups)
    on_core = part * cpu_share(loader, wanted)
    if not helped(loader):
        return Change(fetch_cpu_factor=1.0 - on_core)
    waited = part * group_share(loader.functions.blocked_groups, wanted)
    return Change(fetch_cpu_factor=1.0 - on_core, fetch_blocked_factor=1.0 - waited, helper_cpu_factor=1.0 - waited)


def shrinking_share(loader: LoaderStats) -> float:
    """Part of a fetch in which pictures of a quarter of the pixels at most are made of those just decoded, 0..1.

    Decoded at a smaller size, or stored so, they would need none of it.
    """
    if not len(loader.fetch.item_s) or not group_share(loader.functions.cpu_groups, DECODE_GROUPS):
        return 0.0
    parts = loader.fetch.transforms
    first = list(
        itertools.takewhile(
            lambda part: part.name == "Resize" and part.pixels_in >= _SHRUNK * part.pixels_out > 0, parts
        )
    )
    item_s = float(loader.fetch.item_s.mean())
    if not first or item_s <= 0:
        return 0.0

    def share(of: Iterable[TransformCost]) -> float:
        return min(sum(part.calls * part.mean_s for part in of) / item_s, 1.0) * (1.0 - collate_share(loader))

    # Of a file that is decoded only by the resize, the decoding is another group.
    return min(share(first), max(cpu_share(loader, TRANSFORM_GROUPS) - share(parts[len(first) :]), 0.0))


def like_the_others(loader: LoaderStats, slow: SlowSamples, part: float = 1.0) -> Change:
    """The change of taking ``part`` of what slow samples compute beyond a median one off the fetches."""
    return Change(fetch_cpu_factor=1.0 - part * slow.excess * (1.0 - collate_share(loader)))


def without_reading(loader: LoaderStats, part: float = 1.0) -> Change:
    """The change of having ``part`` of the bytes in memory: no waiting for them, and no client that asks a network."""
    client = group_share(loader.functions.cpu_groups, ("network",))
    return Change(fetch_blocked_factor=1.0 - part * storage_share(loader), fetch_cpu_factor=1.0 - part * client)


def group_share(groups: Mapping[str, float], names: Iterable[str]) -> float:
    """Summed share of some function groups."""
    return sum(groups.get(name, 0.0) for name in names)


def reading_less(loader: LoaderStats, needless: float) -> Change:
    """The change of not reading, nor unpacking, a part of the bytes (0 to 1)."""
    # Where a library's threads unpack for the fetch, waiting for them is waiting for the bytes.
    waited = group_share(loader.functions.blocked_groups, STORAGE_GROUPS)
    return Change(
        fetch_blocked_factor=1.0 - needless * waited,
        fetch_cpu_factor=1.0 - needless * group_share(loader.functions.cpu_groups, unpacking_groups(loader)),
        helper_cpu_factor=1.0 - needless * waited if helped(loader) else None,
    )


def unpacking_groups(loader: LoaderStats) -> tuple[str, ...]:
    """Groups whose computing grows with the bytes read.

    Decoding only where tables or texts are parsed, which a library's own threads may do, or where libraries were seen
    to read whole arrays.
    """
    whole = (unpacked_ratio(loader) or 0.0) > 1.0
    parsed = loader.functions.packages.get("decode") in (*TABLE_PACKAGES, *TEXT_PACKAGES)
    return (*UNPACKING_GROUPS, "decode") if whole or parsed or helped(loader) else UNPACKING_GROUPS


def unpacked_ratio(loader: LoaderStats) -> float | None:
    """Values that libraries read out of arrays, for each value of a sample; None: none was read whole for a part of it.

    A part of a volume is a patch of it. What else is far smaller than its array may have been made of all of it: where
    reading takes most of the fetch, the rest is too cheap for that. Of pictures that is not said: they are often made
    smaller, which is cheap.
    """
    arrays, kept = loader.storage.arrays, sample_values(loader.delivery)
    if not arrays or not kept or arrays.package == PICTURES:
        return None
    ratio = arrays.values / kept
    cut = ratio >= _CUT and arrays.seconds >= DOMINANT_SHARE * sample_s(loader)
    return ratio if cut or arrays.volumes or patch_shape(loader.delivery) else None


def sample_s(loader: LoaderStats) -> float:
    """Seconds of fetching one sample."""
    if not loader.delivery.samples:
        return 0.0
    return mean_s(loader.fetch.wall_s) * loader.delivery.batches / loader.delivery.samples


def read_ratio(run: MeasuredRun, loader: LoaderStats) -> float | None:
    """Bytes read for each byte that a sample keeps, as it lies in its file where that is known; None: not measured."""
    used, read = sample_bytes(loader), read_bytes(run)
    if used is None or read is None:
        return None
    kept = stored_bytes(loader) or used
    return read / kept if kept else 0.0


def scans_tables(run: MeasuredRun, loader: LoaderStats) -> bool:
    """True if a database is searched, and reads far more than a sample keeps: it has no index for that."""
    return loader.functions.searches_database and (read_ratio(run, loader) or 0.0) >= AMPLIFIED


def stored_bytes(loader: LoaderStats) -> float | None:
    """Bytes of one sample's values in the type that its arrays were read in; None: none was read whole for a part."""
    arrays, kept = loader.storage.arrays, sample_values(loader.delivery)
    return kept * arrays.bytes / arrays.values if unpacked_ratio(loader) and arrays and kept else None


def fewer_bytes(run: MeasuredRun, model: RateModel, factor: float) -> Change:
    """Batches of ``factor`` times the bytes: copying them together, handing them over and freeing them shrink alike."""
    loader = run.loading
    if loader is None:
        return Change()
    collate_s = mean_s(loader.fetch.collate_s)
    copy_s = (loader.delivery.batch_bytes or 0) / COPY_BYTES_PER_S
    copying = min(copy_s / collate_s, 1.0) * collate_share(loader) if collate_s else 0.0
    freed_s = freeing_s(run) / model.batches * (1.0 - factor)
    piped_s = min(loader.delivery.pickled_bytes / PIPE_BYTES_PER_S, model.now.handover_s)
    return Change(
        fetch_cpu_factor=1.0 - copying * (1.0 - factor),
        handover_factor=1.0 - (1.0 - factor) * piped_s / model.now.handover_s if piped_s else 1.0,
        step_removed_s=freed_s,
        step_cpu_removed_s=freed_s,
    )


def freeing_s(run: MeasuredRun) -> float:
    """Seconds of freeing large batches: host code on the line that iterates the loader, which drops the last batch."""
    if run.loading is None or (run.loading.delivery.batch_bytes or 0) < LARGE_BATCH:
        return 0.0
    lines = run.lines("host_other", 100)
    return sum(line.seconds for line in lines if f"{line.file}:{line.line}" == run.loading.settings.site)


def sample_bytes(loader: LoaderStats) -> float | None:
    """Bytes of one sample in its batch."""
    if not loader.delivery.batch_bytes or not loader.delivery.samples:
        return None
    return loader.delivery.batch_bytes * loader.delivery.batches / loader.delivery.samples


def read_bytes(run: MeasuredRun) -> float | None:
    """Bytes read for a sample: by read calls, by storage where files are mapped, by the network if that is waited for.

    The kernel counts what comes through sockets for the machine alone, so it is taken for the samples' only where
    fetches mostly wait for the network.
    """
    loader, received = run.loading, run.usage.received_bps
    if loader is None:
        return None
    counted = (loader.storage.bytes_read_per_sample, loader.storage.uncached_bytes_per_sample)
    found = [value for value in counted if value is not None]
    network = loader.functions.blocked_groups.get("network", 0.0)
    if received is not None and loader.delivery.samples and network >= DOMINANT_SHARE:
        found.append(received * run.ledger.window_s / loader.delivery.samples)
    return max(found, default=None)


def computing_threads(run: MeasuredRun, loader: LoaderStats) -> float:
    """Threads that compute in one worker: as configured, or as its CPU time shows, whichever is more."""
    configured = float(run.process.worker_threads or 1)
    if loader.fetch.process_cpu_s is None or loader.fetch.cpu_s is None:
        return configured
    cpu_s = float(loader.fetch.cpu_s.sum())
    # The queue's own thread pickles the batch before while this one is fetched.
    serialize_s = (
        float(loader.delivery.serialize_s.mean()) * len(loader.fetch.wall_s)
        if len(loader.delivery.serialize_s)
        else 0.0
    )
    measured = (float(loader.fetch.process_cpu_s.sum()) - serialize_s) / cpu_s if cpu_s > 0 else 1.0
    # Other threads that only pickle or poll are no computing threads.
    return max(configured, measured) if measured >= SEVERAL_THREADS else 1.0
