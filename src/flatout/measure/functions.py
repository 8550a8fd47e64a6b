"""The kinds of work that a sampled stack shows: reading, decompressing, decoding, transforming, ..."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# A thread in these groups mostly waits; in all others it mostly computes.
WAITING_GROUPS = frozenset({"read", "lock", "network"})
# Of blocked time. Decoders written in C read their files themselves: one that is blocked waits for bytes.
STORAGE_GROUPS = ("read", "network", "decode", "decompress")
OTHER = "other"


@dataclass(frozen=True)
class Rule:
    """A frame belongs to ``group`` when every pattern that is given is found in it."""

    group: str
    path: str = ""  # in the file, with forward slashes
    function: str = ""  # in the whole (qualified) function name
    source: str = ""  # in the text of the line
    inside: str = ""  # in the file of a frame further out


# The table is tried from top to bottom on each frame, from the innermost one outward, up to and including the first
# frame of the user's own code; the first hit decides. The innermost Python frame of a call into C is the line
# that calls, so rules on the source text catch calls without a Python frame (cv2.imdecode, zlib, file.read).
# Within one frame the order settles: a line that says both what it waits for and what it computes
# is named by the outer operation, so that `decode(file.read())` is decoding only once read() has returned.
RULES: tuple[Rule, ...] = (
    # Waiting for another thread or process.
    Rule("lock", r"/threading\.py$", r"\b(wait|acquire|join|_wait_for_tstate_lock|__enter__)$"),
    Rule("lock", r"/(queue|multiprocessing/(queues|synchronize))\.py$", r"\b(get|put|acquire|__enter__)$"),
    Rule("lock", r"/concurrent/futures/", r"\b(result|wait|as_completed)\b"),
    Rule("lock", r"/(filelock|portalocker|fasteners)/"),
    Rule("lock", source=r"\.acquire\(|\bfcntl\.(flock|lockf)\(|\bwith\s+[\w.]*lock\b"),
    # Waiting for a remote host.
    Rule("network", r"/(socket|ssl|selectors|http/client|urllib/request|ftplib)\.py$"),
    Rule("network", r"/(urllib3|requests|httpx2?|httpcore2?|aiohttp|botocore|boto3|s3transfer|s3fs|gcsfs|adlfs)/"),
    Rule("network", r"/(s3torchconnector\w*|google/cloud/storage|azure/storage|paramiko|huggingface_hub|grpc)/"),
    Rule("network", source=r"\b(urlopen|requests\.get|get_object|download_file\w*|recv_into|recv)\("),
    # Decompressing bytes of any kind.
    Rule("decompress", r"/(gzip|bz2|lzma|zipfile(/__init__)?|_compression|compression/\w+)\.py$"),
    Rule("decompress", r"/(numcodecs|blosc2?|zstandard|lz4|imagecodecs|py7zr|brotli|snappy)/"),
    Rule("decompress", source=r"\b(zlib|gzip|bz2|lzma|zstd|zstandard|lz4\w*|blosc2?|snappy|brotli)\.\w*"),
    Rule("decompress", source=r"\bdecompress\w*\("),
    Rule("decompress", source=r"\.npz\b|savez_compressed|\bimagecodecs\.\w+"),
    # PIL reads lazily: these are the lines of load(), where the decoder gets its bytes.
    Rule("read", r"/PIL/\w+\.py$", source=r"\bread(line)?\("),
    Rule("decode", r"/PIL/\w+\.py$", r"\b(load|load_end|load_prepare|open|_open|preinit|init)$"),
    # Pillow changes colours by way of another colour space.
    Rule("transform", r"/PIL/Image\.py$", r"\bconvert$", inside=r"/(torchvision/transforms|albumentations)/"),
    Rule("convert", r"/PIL/Image\.py$", r"\b(tobytes|__array_interface__|convert|frombuffer|fromarray)\b"),
    Rule("transform", r"/PIL/"),
    Rule("read", r"/tifffile/", r"FileHandle\.\w*read\w*"),
    Rule("decode", r"/(tifffile|imageio|nibabel|pydicom|SimpleITK|rasterio|openslide|pyvips|rawpy|pillow_heif)/"),
    Rule("decode", r"/(simplejpeg|turbojpeg|nvidia/dali|decord|av|torchcodec|soundfile|librosa/core/audio)\b"),
    Rule("decode", r"/(torchvision/io|torchaudio/(backend|_backend)|skimage/io)/"),
    Rule("decode", source=r"\b(imdecode|imread\w*|decode_\w+|read_image|read_video|VideoReader|load_img|pil_loader)\("),
    Rule(
        "decode",
        source=r"\bImage\.open\(|\.decode\(|\bsf\.read\(|\b(torchaudio|librosa|nib|json|msgpack|pickle)\.loads?\(",
    ),
    Rule("decode", r"/(json|csv|pickle|msgpack|xml)(/|\.py$)"),
    Rule("decode", r"/(pandas/io|pyarrow/(parquet|csv|json|feather|orc|ipc|dataset))(/|\.py$)"),
    Rule("transform", r"/(pandas|pyarrow)/"),
    # Changing the values or the shape of a decoded sample.
    Rule("convert", r"/torchvision/transforms/", r"\b(to_tensor|pil_to_tensor|to_image|to_dtype\w*|convert_\w+)$"),
    Rule("transform", r"/(torchvision/transforms|albumentations|albucore|kornia|monai/transforms|torchio|imgaug)/"),
    Rule("transform", r"/(scipy/(ndimage|signal|interpolate|fft)|skimage|batchgenerators\w*|audiomentations)/"),
    Rule("transform", r"/(torch/nn/functional|torchaudio/(transforms|functional)|librosa|tokenizers|transformers)\b"),
    Rule("transform", source=r"\b(ndimage|ndi|albumentations|kornia|fft|skimage\.\w+)\.\w+\("),
    Rule(
        "transform", source=r"\bcv2\.(?!im|cvtColor)\w+\(|\b(resize|rotate|crop|flip\w*|warp\w*|blur|pad|interpolate)\("
    ),
    Rule(
        "transform", source=r"\b(normalize|augment\w*|tokenizer?|encode|permute|transpose|rot90|affine\w*|filter\w*)\("
    ),
    # Changing only the type or the container.
    Rule("convert", source=r"\b(from_numpy|as_tensor|to_tensor|ToTensor|ascontiguousarray|asarray|np\.array)\("),
    Rule(
        "convert", source=r"\btorch\.(tensor|stack|cat)\(|\bnp\.(stack|concatenate)\(|\.(astype|float|half|to|copy)\("
    ),
    Rule("convert", source=r"\b(cvtColor|frombuffer|convert|numpy)\("),
    # Reading last among the rules on source text: most lines that decode also name what they read.
    Rule("read", r"/(pathlib(/\w+)?|_pyio|codecs|shutil|mmap|tarfile|numpy/lib/(_?npyio|_?format)\w*)\.py$"),
    Rule("read", r"/(numpy/lib/_npyio_impl|numpy/_core/memmap|h5py|zarr|lmdb|webdataset|fsspec|tensorstore|netCDF4)\b"),
    Rule("read", source=r"\b(open|read\w*|pread\w*|seek|fromfile|memmap|mmap|stat|listdir|scandir|glob|exists)\("),
    Rule("read", source=r"\bnp\.load\(|\btorch\.load\(|\bh5py\.|\bzarr\.|\.get_tensor\("),
    # The weakest evidence: a call of something that the user named so.
    Rule("transform", source=r"transforms?\w*\("),
)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text)


_COMPILED = tuple(
    (rule.group, _pattern(rule.path), _pattern(rule.function), _pattern(rule.source), _pattern(rule.inside))
    for rule in RULES
)


def function_group(frames: Sequence[Sequence[Any]]) -> str:
    """Group of a sampled stack.

    Args:
        frames: innermost first, ``[file, line, function, source, is_user]`` as the record keeps them.

    Returns:
        read, lock, network, decompress, decode, transform, convert or other.
    """
    paths = [str(frame[0]).replace("\\", "/") for frame in frames]
    for place, (_file, _line, function, source, is_user) in enumerate(frames):
        for group, in_path, in_function, in_source, inside in _COMPILED:
            # An empty pattern is found in any text.
            if not (
                in_path.search(paths[place]) and in_function.search(str(function)) and in_source.search(str(source))
            ):
                continue
            if not inside.pattern or any(inside.search(path) for path in paths[place + 1 :]):
                return group
        if is_user:
            break
    return OTHER
