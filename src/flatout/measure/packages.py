"""The kind of work that a function of a data package does, by the layout of the package's source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """A part of a package: its frames belong to ``group`` when every pattern that is given is found."""

    group: str
    path: str = ""  # in the file, with forward slashes
    function: str = ""  # in the whole (qualified) function name
    source: str = ""  # in the text of the line
    inside: str = ""  # in the file of a frame further out


@dataclass(frozen=True)
class Package:
    """An installed package, or several that are alike.

    Attributes:
        path: pattern of the beginning of its files' paths below site-packages.
        parts: tried in order on each of its frames.
        group: of a stack in which no part is found; empty: the frames further out decide.
        outermost: the part that is called first decides, not the innermost one. Libraries of tables are written in
            themselves: a merge looks rows up, and a query compares columns.
    """

    path: str
    parts: tuple[Part, ...] = ()
    group: str = ""
    outermost: bool = False


_CONVERTS = r"\b(to_(numpy|list|dicts?|pandas|arrow|torch|records|init_repr|pylist)|astype|__array__|cast)$"
_COMPARES = r"\b(__(eq|ne|lt|le|gt|ge|and|or|xor|invert)__|isin|is_in|between|is_between|isna|notna)$"

PACKAGES: tuple[Package, ...] = (
    # Tables in memory, and what reads them.
    Package(
        r"pandas/",
        (
            Part("read", r"/pandas/io/(sql|pytables)\.py$"),
            Part("transform", r"/pandas/io/formats/"),
            Part("decode", r"/pandas/io/"),
            Part("transform", r"/pandas/core/indexing\.py$", r"\b(__setitem__|_setitem\w*)$"),
            Part("lookup", r"/pandas/core/indexing\.py$", r"\b(__getitem__|_getitem\w*|_get_\w+|_slice)$"),
            Part(
                "lookup",
                r"/pandas/core/(frame|series|generic)\.py$",
                r"\b(__getitem__|_getitem\w*|_get_values?|_get_rows_with_mask|_ixs|_slice|query|xs|take|head|tail|sample"
                r"|get|filter|iterrows|itertuples|items|__iter__|nlargest|nsmallest|reindex|truncate|at_time"
                r"|between_time)$",
            ),
            Part("lookup", r"/pandas/core/(arraylike|frame|series|generic|algorithms)\.py$", _COMPARES),
            Part("convert", r"/pandas/core/(frame|series|generic|base)\.py$", rf"{_CONVERTS}|\b(values|copy|tolist)$"),
            Part("transform", r"/pandas/core/(frame|series|generic|groupby|reshape|window|strings|resample)\b"),
        ),
        "transform",
        outermost=True,
    ),
    Package(
        r"polars/",
        (
            Part("read", r"/polars/io/database/"),
            Part("decode", r"/polars/io/"),
            Part("lookup", r"/polars/_utils/getitem\.py$"),
            Part(
                "lookup",
                r"/polars/(dataframe/frame|series/series)\.py$",
                r"\b(__getitem__|rows?|rows_by_key|iter_rows|iter_slices|item|filter|slice|head|tail|limit|gather"
                r"|gather_every|get_column|sample|to_series|__iter__)$",
            ),
            Part("lookup", r"/polars/series/series\.py$", _COMPARES),
            Part("convert", r"/polars/(dataframe/frame|series/series)\.py$", _CONVERTS),
            Part("transform", r"/polars/(dataframe|series)/"),
            # A plan that the user collects begins with the scan of a file.
            Part("decode", r"/polars/lazyframe/", r"\b(collect\w*|fetch)$"),
        ),
        "transform",
        outermost=True,
    ),
    Package(
        r"pyarrow/",
        (
            Part("decode", r"/pyarrow/(parquet/\w+|csv|json|feather|orc|ipc|dataset)\.py$"),
            Part("convert", r"/pyarrow/pandas_compat\.py$"),
            Part("read", r"/pyarrow/fs\.py$"),
        ),
    ),
    Package(
        r"datasets/",
        (
            Part("decode", r"/datasets/features/"),
            Part("lookup", r"/datasets/(table|arrow_dataset|formatting/\w+)\.py$"),
        ),
    ),
    Package(
        r"anndata/",
        (Part("lookup", r"/anndata/_core/(anndata|index|views|raw|sparse_dataset)\.py$"), Part("decode", r"/_?io/")),
    ),
    Package(
        r"scipy/",
        (
            Part(
                "lookup", r"/scipy/sparse/_(index|csr|csc|compressed|lil|dok)\.py$", r"__getitem__|_get_|getrow|_slice"
            ),
            Part("decode", r"/scipy/io/"),
            Part("transform", r"/scipy/(ndimage|signal|interpolate|fft|sparse|spatial)/"),
        ),
    ),
    Package(r"(dask|sklearn|category_encoders)/", group="transform"),
    # Files of arrays, databases.
    Package(r"(h5py|netCDF4|tensorstore|tables)/", group="read"),
    Package(r"(numcodecs|blosc2?|zstandard|lz4|py7zr|brotli|snappy)/", group="decompress"),
    Package(
        r"zarr/",
        (
            Part("decompress", r"/zarr/(core|codecs/\w+)\.py$", source=r"\b(decode|decompress)\("),
            Part("decompress", r"/zarr/codecs/(blosc|zstd|gzip|numcodecs)\b"),
            Part("read", r"/zarr/(storage|_storage|store|core/sync)\b"),
        ),
        "read",
    ),
    Package(r"xarray/", (Part("read", r"/xarray/backends/"), Part("decode", r"/xarray/coding/")), "transform"),
    Package(r"(lmdb|sqlite3|sqlalchemy|peewee|duckdb|apsw|rocksdict|plyvel|diskcache)(/|\.py$)", group="read"),
    # Remote stores and hosts.
    Package(
        r"fsspec/",
        (
            Part("read", r"/fsspec/implementations/(local|memory)\.py$"),
            Part("decompress", r"/fsspec/compression\.py$"),
            Part("network", r"/fsspec/(asyn|implementations/(http\w*|sftp|ftp|webhdfs|smb|github|hf))\.py$"),
        ),
        "read",
    ),
    Package(
        r"(urllib3|requests|httpx2?|httpcore2?|aiohttp|botocore|boto3|s3transfer|s3fs|gcsfs|adlfs|s3torchconnector\w*"
        r"|google/cloud/storage|azure/storage|paramiko|huggingface_hub|grpc|minio|obstore|pymongo|redis|psycopg2?"
        r"|pymysql|asyncpg)/",
        group="network",
    ),
    # Readers of packed data sets.
    Package(
        r"webdataset/",
        (
            Part("decode", r"/webdataset/autodecode\.py$"),
            Part("read", r"/webdataset/(tariterators|gopen|cache|wids\w*)\b"),
        ),
    ),
    Package(
        r"litdata/",
        (
            Part("network", r"/litdata/streaming/(downloader|resolver)\.py$"),
            Part("decode", r"/litdata/streaming/serializers\.py$"),
            Part("decompress", r"/litdata/(streaming/)?compression\.py$"),
        ),
        "read",
    ),
    Package(
        r"streaming/base/",
        (
            Part("network", r"/streaming/base/storage/"),
            Part("decode", r"/streaming/base/format/\w+/encodings\.py$"),
            Part("decompress", r"/streaming/base/compression\.py$"),
        ),
        "read",
    ),
    # Pictures. Pillow reads lazily: lines of load() are where the decoder gets its bytes.
    Package(
        r"PIL/",
        (
            Part("read", r"/PIL/\w+\.py$", source=r"\bread(line)?\("),
            Part("decode", function=r"\b(load|load_end|load_prepare|open|_open|preinit|init)$"),
            # Pillow changes colours by way of another colour space.
            Part("transform", function=r"\bconvert$", inside=r"/(torchvision/transforms|albumentations)/"),
            # Elsewhere, open(file).convert("RGB") decodes: it copies the picture at full size, of whatever mode it is.
            Part("decode", function=r"\bconvert$"),
            Part("convert", function=r"\b(tobytes|__array_interface__|frombuffer|fromarray)\b"),
        ),
        "transform",
    ),
    Package(r"tifffile/", (Part("read", function=r"FileHandle\.\w*read\w*"),), "decode"),
    Package(r"(imageio|pydicom|rasterio|openslide|pyvips|rawpy|pillow_heif|imagecodecs|tiffslide)/", group="decode"),
    Package(
        r"nibabel/",
        (
            Part("read", r"/nibabel/volumeutils\.py$", r"\barray_from_file$"),
            Part("transform", r"/nibabel/(processing|orientations|affines|spatialimages)\.py$"),
        ),
        "decode",
    ),
    Package(
        r"SimpleITK/",
        (
            Part("decode", function=r"\b(ReadImage|ReadTransform|Image(File|Series)Reader)\b"),
            Part("convert", function=r"\b(GetArray(View)?FromImage|GetImageFromArray|_get_numpy_dtype|Cast)\b"),
        ),
        "transform",
    ),
    Package(r"(simplejpeg|turbojpeg|nvidia/dali)(/|\.py$)", group="decode"),
    Package(
        r"torchvision/",
        (
            Part("decode", r"/torchvision/io/"),
            Part("convert", r"/transforms/", r"\b(to_tensor|pil_to_tensor|to_image|to_dtype\w*|convert_\w+)$"),
            Part("transform", r"/torchvision/transforms/"),
        ),
    ),
    Package(r"skimage/", (Part("decode", r"/skimage/io/"),), "transform"),
    Package(
        r"(albumentations|albucore)/",
        (Part("convert", r"/albumentations/pytorch/"),),
        "transform",
    ),
    Package(
        r"kornia/",
        (Part("decode", r"/kornia/io/"), Part("convert", r"/kornia/utils/image\.py$", r"_to_")),
        "transform",
    ),
    Package(
        r"(monai|torchio)/",
        (Part("decode", r"/monai/data/image_reader\.py$|/torchio/data/io\.py$"),),
        "transform",
    ),
    Package(r"(batchgenerators\w*|imgaug|augly)/", group="transform"),
    # Sound and video.
    Package(r"(soundfile\.py$|audioread/)", group="decode"),
    Package(
        r"torchaudio/",
        (Part("decode", r"/torchaudio/(backend|_backend|io|_torchcodec|_extension)\b"),),
        "transform",
    ),
    Package(
        r"librosa/",
        (Part("decode", r"/librosa/core/audio\.py$", r"\b(load|__soundfile_load|__audioread_load|stream)$"),),
        "transform",
    ),
    Package(r"(audiomentations|torch_audiomentations|soxr|resampy)/", group="transform"),
    Package(r"decord/", (Part("convert", r"/decord/bridge/"),), "decode"),
    Package(
        r"(av|torchcodec|pytorchvideo/data/encoded_video\w*)/", (Part("convert", function=r"to_ndarray"),), "decode"
    ),
    # Text.
    Package(r"(tokenizers|sentencepiece|tiktoken|sacremoses|jieba|youtokentome)/", group="tokenise"),
    Package(
        r"transformers/",
        (
            Part("convert", r"/tokenization_\w+\.py$", r"\b(_?(batch_)?decode|convert_ids_to_tokens|pad|_pad)$"),
            Part("tokenise", r"/transformers/(models/\w+/)?tokenization_\w+\.py$"),
            Part("convert", r"/transformers/data/data_collator\.py$"),
            Part("decode", r"/transformers/(image|video|audio)_utils\.py$", r"\bload_\w+$"),
            Part("transform", r"/(image_processing|image_transforms|feature_extraction|video_processing|audio_utils)"),
        ),
    ),
    Package(r"nltk/", (Part("read", r"/nltk/(corpus|data)\b"),), "tokenise"),
    Package(r"(spacy|thinc)/", (Part("read", function=r"\b(load\w*|from_disk)$"),), "tokenise"),
    # Molecules and graphs.
    Package(
        r"rdkit/",
        (Part("decode", function=r"\b(Mol(sFrom|From|FromSmiles)\w*|\w*MolSupplier|LoadSDF)\b"),),
        "transform",
    ),
    Package(
        r"torch_geometric/",
        (
            Part("decode", r"/torch_geometric/io/"),
            Part("read", r"/torch_geometric/data/(database|on_disk_dataset)\.py$"),
            Part("network", r"/torch_geometric/data/download\.py$"),
            Part("convert", r"/torch_geometric/(data/(batch|collate|separate)|utils/convert|loader/dataloader)\.py$"),
            Part("transform", r"/torch_geometric/(transforms|utils|sampler|loader|nn)/"),
        ),
    ),
    Package(
        r"dgl/",
        (
            Part("decode", r"/dgl/data/", r"\bload_\w+$"),
            Part("convert", r"/dgl/(convert|batch)\.py$"),
        ),
        "transform",
    ),
    Package(
        r"networkx/",
        (Part("decode", r"/networkx/readwrite/"), Part("convert", r"/networkx/(convert|convert_matrix|relabel)\.py$")),
        "transform",
    ),
)
