"""The kinds of work that a sampled stack shows: reading, decoding, looking rows up, transforming, ..."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flatout.measure.packages import PACKAGES, Part

# A thread in these groups mostly waits; in all others it mostly computes.
WAITING_GROUPS = frozenset({"read", "lock", "network"})
# Of blocked time. Decoders written in C read their files themselves: one that is blocked waits for bytes.
STORAGE_GROUPS = ("read", "network", "decode", "decompress")
OTHER = "other"

# What no package of PACKAGES does: the standard library by its files, calls into C by the text of their line.
# Tried from top to bottom on each frame, from the innermost one outward, up to and including the first frame of the
# user's own code; the first hit decides. The innermost Python frame of a call into C is the line that calls, so rules
# on the source text catch calls without a Python frame (cv2.imdecode, zlib, file.read).
# Within one frame the order settles: a line that says both what it waits for and what it computes
# is named by the outer operation, so that `decode(file.read())` is decoding only once read() has returned.
RULES: tuple[Part, ...] = (
    # Stack traces as text read source files: torch makes one of each call that waits for CUDA to start (manual_seed).
    Part(OTHER, r"/(traceback|linecache)\.py$"),
    Part(OTHER, inside=r"/python3[^/]*/(traceback|linecache)\.py$"),
    # A synchronous call of an asynchronous client waits for the thread of its event loop.
    Part("network", r"/(threading|concurrent/futures/\w+)\.py$", inside=r"/fsspec/asyn\.py$"),
    Part("read", r"/(threading|concurrent/futures/\w+)\.py$", inside=r"/zarr/core/sync\.py$"),
    # Waiting for another thread or process.
    Part("lock", r"/threading\.py$", r"\b(wait|acquire|join|_wait_for_tstate_lock|__enter__)$"),
    Part("lock", r"/(queue|multiprocessing/(queues|synchronize))\.py$", r"\b(get|put|acquire|__enter__)$"),
    Part("lock", r"/concurrent/futures/", r"\b(result|wait|as_completed)\b"),
    Part("lock", r"/(filelock|portalocker|fasteners)/"),
    Part("lock", source=r"\.acquire\(|\bfcntl\.(flock|lockf)\(|\bwith\s+[\w.]*lock\b"),
    # Waiting for a remote host.
    Part("network", r"/(socket|ssl|selectors|http/client|urllib/request|ftplib)\.py$"),
    Part("network", source=r"\b(urlopen|requests\.get|get_object|download_file\w*|recv_into|recv)\("),
    # Decompressing bytes of any kind.
    Part("decompress", r"/(gzip|bz2|lzma|zipfile(/__init__)?|_compression|compression/\w+)\.py$"),
    Part("decompress", source=r"\b(zlib|gzip|bz2|lzma|zstd|zstandard|lz4\w*|blosc2?|snappy|brotli)\.\w*"),
    Part("decompress", source=r"\bdecompress\w*\("),
    Part("decode", source=r"\bimagecodecs\.(jpeg|png|webp|jpegxl|jpegls|jpegxr|jpeg2k|avif|heif|gif)\w*_decode\("),
    Part("decompress", source=r"\.npz\b|savez_compressed|\bimagecodecs\.\w+"),
    # Text into tokens, before decoding: a tokenizer has a method of that name too.
    Part("convert", source=r"\btokenizer\.(batch_)?decode\("),
    Part("tokenise", source=r"\b\w*tokeni[sz]e\w*\(|\btokenizer\.(encode|__call__|batch_encode)\w*\(|\btokenizer\("),
    Part(
        "tokenise", source=r"\b(enc|encoding|bpe|sp|spm|sentencepiece|tiktoken)\.(encode|Encode)\w*\(|\bnlp(\.pipe)?\("
    ),
    # Rows of a table in memory, by position, by label or by a condition.
    Part("lookup", source=r"\.(iloc|loc|iat)\[|\bpc\.(equal|is_in|filter|take|index|index_in)\("),
    Part("lookup", source=r"\b\w*(table|dataframe|df)\.(slice|take|filter|row|query|itertuples|iterrows)\("),
    Part("decode", source=r"\b(imdecode|imread\w*|decode_\w+|read_image|read_video|VideoReader|load_img|pil_loader)\("),
    Part(
        "decode",
        source=r"\b\w*(cap|capture|video)\.(read|grab|retrieve)\(|\bav\.open\(|\b(container|packet)\.decode\(|\bRead(Image|Transform)\(",
    ),
    # bytes.decode() of a short text is not the decoding that costs time.
    Part("decode", source=r"\bImage\.open\(|\.decode\((?![\"')])|\bMol(s)?From\w+\(|\w*MolSupplier\("),
    Part(
        "decode",
        source=r"\bsf\.read\(|\b(?P<package>torchaudio|librosa|nib|u?json|orjson|simplejson|msgpack|pickle|yaml|tomllib)"
        r"\.(safe_)?loads?\(",
    ),
    Part(
        "decode",
        source=r"\b(?P<package>ET|etree|ElementTree|lxml|csv|ast)\.(parse|fromstring|XML|\w*[rR]eader|literal_eval)\(",
    ),
    Part(
        "decode",
        source=r"\b(read|scan)_(csv|parquet|json|ndjson|feather|ipc|excel|orc|table)\(|\b(loadtxt|genfromtxt)\(",
    ),
    Part("decode", r"/(?P<package>json|csv|pickle|msgpack|xml|yaml|ast)(/|\.py$)|/google/protobuf/"),
    Part("decode", r"/(?P<package>numpy)/lib/_?npyio\w*\.py$", r"\b(loadtxt|genfromtxt|_read|_loadtxt\w*)$"),
    # Changing the values or the shape of a decoded sample.
    Part("transform", r"/torch/nn/functional\b"),
    Part("transform", source=r"\b(ndimage|ndi|albumentations|kornia|fft|skimage\.\w+|pc|Chem|AllChem|rdMol\w+)\.\w+\("),
    Part(
        "transform", source=r"\bcv2\.(?!im|cvtColor)\w+\(|\b(resize|rotate|crop|flip\w*|warp\w*|blur|pad|interpolate)\("
    ),
    Part("transform", source=r"\b(normalize|augment\w*|encode|permute|transpose|rot90|affine\w*|filter\w*)\("),
    # Changing only the type or the container.
    Part("convert", source=r"\b(from_numpy|as_tensor|to_tensor|ToTensor|ascontiguousarray|asarray|np\.array)\("),
    Part(
        "convert", source=r"\btorch\.(tensor|stack|cat)\(|\bnp\.(stack|concatenate)\(|\.(astype|float|half|to|copy)\("
    ),
    Part("convert", source=r"\b(cvtColor|frombuffer|convert|numpy|to_ndarray|to_pylist|GetArrayFromImage)\("),
    # Reading last among the rules on source text: most lines that decode also name what they read.
    Part("read", r"/(pathlib(/\w+)?|_pyio|codecs|shutil|mmap|tarfile|numpy/lib/(_?npyio|_?format)\w*)\.py$"),
    Part("read", r"/numpy/_core/memmap\b|/sqlite3/"),
    Part("read", source=r"\.(execute|executemany|executescript|fetchone|fetchmany|fetchall)\("),
    Part("read", source=r"\b\w*(txn|transaction|cursor|lmdb|env)\.(get|getmulti|begin|set_\w+|iternext\w*|item)\("),
    Part("read", source=r"\b(open|read\w*|pread\w*|seek|fromfile|memmap|mmap|stat|listdir|scandir|glob|exists)\("),
    Part("read", source=r"\bnp\.load\(|\btorch\.load\(|\bh5py\.|\bzarr\.|\.get_tensor\("),
    # The weakest evidence: a call of something that the user named so.
    Part("transform", source=r"transforms?\w*\("),
)
# A tokenizer of the user's own, by the names of the functions on the stack.
_TOKENISES = re.compile(r"(?i)tokeni[sz]|byte_?pair|word_?piece|subword|(^|[._])bpe($|[._])|encode_(word|text)")
_INSTALLED = re.compile(r"^.*/(?:site|dist)-packages(?=/)")
_NAME = re.compile(r"^/([^/]+?)(?:\.py)?(?:/|$)")
_ANY = -1  # in place of a package: RULES
_search = functools.cache(re.compile)  # the cache of re itself is too small for the table


@dataclass(frozen=True)
class Work:
    """The kind of work that a stack shows, and the installed package that does it; None: none of those known."""

    group: str
    package: str | None = None


def function_group(frames: Sequence[Sequence[Any]]) -> str:
    """Group of a sampled stack: that of ``work_of``."""
    return work_of(frames).group


def work_of(frames: Sequence[Sequence[Any]]) -> Work:
    """The work that a sampled stack shows.

    Args:
        frames: innermost first, ``[file, line, function, source, is_user]`` as the record keeps them.

    Returns:
        Its group is read, lock, network, decompress, decode, lookup, tokenise, transform, convert or other.
    """
    # Below site-packages: the folder of an environment may be called anything.
    paths = [_INSTALLED.sub("", str(frame[0]).replace("\\", "/")) for frame in frames]
    for place, frame in enumerate(frames):
        is_user = bool(frame[4])
        known = _ANY if is_user else _package(paths[place])
        group = _in_package(known, frames, paths, place) if known != _ANY else ""
        if group:
            name = _NAME.search(paths[place])
            return Work(group, name[1] if name else None)
        hit = _first_hit(_ANY, frame, paths, place)
        if hit:
            return hit
        if is_user:
            break
    own = (str(frame[2]) for frame in frames if frame[4])
    return Work("tokenise" if any(map(_TOKENISES.search, own)) else OTHER)


def _in_package(known: int, frames: Sequence[Sequence[Any]], paths: list[str], first: int) -> str:
    """Group of the frames of one package, from the innermost out to the code that calls it; empty: not known.

    Frames of other code between them, such as a decorator's, do not count.
    """
    found = ""
    for place in range(first, len(frames)):
        met = _ANY if frames[place][4] else _package(paths[place])
        if frames[place][4] or met not in (_ANY, known):
            break
        hit = _first_hit(known, frames[place], paths, place) if met == known else None
        if hit and not PACKAGES[known].outermost:
            return hit.group
        found = hit.group if hit else found
    return found or PACKAGES[known].group


def _first_hit(known: int, frame: Sequence[Any], paths: list[str], place: int) -> Work | None:
    """What the first part of a package (or of RULES) that fits a frame does; None: none fits."""
    function, source = str(frame[2]), str(frame[3])
    for part in _of_file(known, paths[place]):
        # The user's own file may be called anything.
        if frame[4] and part.path:
            continue
        # An empty pattern is found in any text.
        text = _search(part.source).search(source)
        if text is None or not _search(part.function).search(function):
            continue
        if not part.inside or any(_search(part.inside).search(path) for path in paths[place + 1 :]):
            file = _search(part.path).search(paths[place])
            named = text.groupdict() | (file.groupdict() if file else {})
            return Work(part.group, named.get("package"))
    return None


@functools.lru_cache(4096)
def _of_file(known: int, path: str) -> tuple[Part, ...]:
    """The parts of a package (or of RULES) whose file this may be."""
    parts = RULES if known == _ANY else PACKAGES[known].parts
    return tuple(part for part in parts if _search(part.path).search(path))


@functools.lru_cache(4096)
def _package(path: str) -> int:
    """Place in PACKAGES of the package that a file belongs to; _ANY: none of them."""
    tail = path[1:]
    return next((place for place, package in enumerate(PACKAGES) if _search(package.path).match(tail)), _ANY)
