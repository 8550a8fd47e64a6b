"""The work of the data packages that trainings use most, by stacks as their source is laid out."""

from __future__ import annotations

import pytest

from flatout.measure.functions import function_group, work_of
from flatout.measure.packages import PACKAGES

SITE = "/venv/lib/python3.11/site-packages"
PYTHON = "/usr/lib/python3.11"
OWN = ["/home/me/data.py", 7, "Photos.__getitem__", "value = self.thing(index)", True]


def stack(*inner_first: str, source: str = "") -> list[list[object]]:
    """A stack of "path function" frames inside site-packages, called by a line of the user's that says nothing."""
    frames = []
    for place, text in enumerate(inner_first):
        path, _, function = text.partition(" ")
        folder = "" if path.startswith("/") else SITE + "/"
        frames.append([folder + path, 1, function, source if not place else "", False])
    return [*frames, OWN]


@pytest.mark.parametrize(
    ("group", "frames"),
    [
        # pandas
        (
            "decode",
            ["pandas/io/parsers/c_parser_wrapper.py CParserWrapper.read", "pandas/io/parsers/readers.py read_csv"],
        ),
        ("decode", ["pandas/io/excel/_openpyxl.py OpenpyxlReader.get_sheet_data"]),
        ("read", ["pandas/io/sql.py SQLDatabase.read_query", "pandas/io/sql.py read_sql"]),
        (
            "lookup",
            [
                "pandas/core/internals/managers.py BlockManager.fast_xs",
                "pandas/core/frame.py DataFrame._ixs",
                "pandas/core/indexing.py _iLocIndexer._getitem_axis",
                "pandas/core/indexing.py _LocationIndexer.__getitem__",
            ],
        ),
        (
            "lookup",
            [
                "pandas/core/computation/expr.py PandasExprVisitor.visit",
                "pandas/core/computation/eval.py eval",
                "pandas/core/frame.py DataFrame.eval",
                "pandas/core/frame.py DataFrame.query",
            ],
        ),
        (
            "lookup",
            [
                "pandas/core/ops/array_ops.py comparison_op",
                "pandas/core/series.py Series._cmp_method",
                "pandas/core/arraylike.py OpsMixin.__eq__",
                "pandas/core/ops/common.py _unpack_zerodim_and_defer.<locals>.new_method",
            ],
        ),
        ("lookup", ["pandas/core/indexes/base.py Index.get_indexer", "pandas/core/frame.py DataFrame.__getitem__"]),
        ("lookup", ["pandas/core/frame.py DataFrame.itertuples"]),
        (
            "transform",
            [
                "pandas/core/indexes/base.py Index.get_indexer",
                "pandas/core/generic.py NDFrame.take",
                "pandas/core/reshape/merge.py _MergeOperation.get_result",
                "pandas/core/reshape/merge.py merge",
                "pandas/core/frame.py DataFrame.merge",
            ],
        ),
        ("transform", ["pandas/core/groupby/groupby.py GroupBy.mean"]),
        ("transform", ["pandas/core/frame.py DataFrame._setitem_array", "pandas/core/frame.py DataFrame.__setitem__"]),
        (
            "transform",
            [
                "pandas/core/indexing.py _LocIndexer._get_setitem_indexer",
                "pandas/core/indexing.py _LocationIndexer.__setitem__",
            ],
        ),
        (
            "convert",
            ["pandas/core/internals/managers.py BlockManager.as_array", "pandas/core/frame.py DataFrame.to_numpy"],
        ),
        # polars
        ("decode", ["polars/io/parquet/functions.py read_parquet", "polars/_utils/deprecation.py wrapper"]),
        ("lookup", ["polars/_utils/getitem.py get_df_item_by_key", "polars/dataframe/frame.py DataFrame.__getitem__"]),
        (
            "lookup",
            [
                "polars/lazyframe/frame.py LazyFrame.collect",
                "polars/lazyframe/opt_flags.py forward_old_opt_flags.<locals>.decorate.<locals>.wrapper",
                "polars/dataframe/frame.py DataFrame.filter",
            ],
        ),
        (
            "transform",
            ["polars/lazyframe/frame.py LazyFrame.collect", "polars/dataframe/frame.py DataFrame.with_columns"],
        ),
        ("decode", ["polars/lazyframe/frame.py LazyFrame.collect"]),
        ("convert", ["polars/series/series.py Series.to_numpy", "polars/dataframe/frame.py DataFrame.to_numpy"]),
        # pyarrow and what is built on it
        ("decode", ["pyarrow/parquet/core.py ParquetFile.read_row_group"]),
        ("decode", ["pyarrow/parquet/core.py read_table", "pandas/io/parquet.py PyArrowImpl.read"]),
        ("convert", ["pyarrow/pandas_compat.py table_to_dataframe"]),
        (
            "lookup",
            [
                "datasets/table.py IndexedTableMixin.fast_slice",
                "datasets/formatting/formatting.py query_table",
                "datasets/arrow_dataset.py Dataset.__getitem__",
            ],
        ),
        ("decode", ["PIL/ImageFile.py ImageFile.load", "datasets/features/image.py Image.decode_example"]),
        (
            "decode",
            ["PIL/Image.py Image.copy", "PIL/Image.py Image.convert", "torchvision/datasets/folder.py pil_loader"],
        ),
        # arrays in files
        ("read", ["h5py/_hl/selections.py select", "h5py/_hl/dataset.py Dataset.__getitem__"]),
        ("read", ["zarr/storage.py DirectoryStore._fromfile", "zarr/core.py Array.__getitem__"]),
        ("decompress", ["numcodecs/zstd.py Zstd.decode", "zarr/core.py Array._decode_chunk"]),
        (
            "read",
            [
                f"{PYTHON}/threading.py Condition.wait",
                f"{PYTHON}/concurrent/futures/_base.py wait",
                "zarr/core/sync.py sync",
                "zarr/core/array.py Array.__getitem__",
            ],
        ),
        # pictures and volumes
        ("read", ["tifffile/tifffile.py FileHandle.read_array", "tifffile/tifffile.py TiffPage.asarray"]),
        ("decode", ["tifffile/tifffile.py TiffPage.decode", "tifffile/tifffile.py imread"]),
        ("decompress", [f"{PYTHON}/gzip.py GzipFile.read", "nibabel/volumeutils.py array_from_file"]),
        ("read", ["nibabel/volumeutils.py array_from_file", "nibabel/arrayproxy.py ArrayProxy._get_unscaled"]),
        ("decode", ["nibabel/volumeutils.py apply_read_scaling", "nibabel/dataobj_images.py DataobjImage.get_fdata"]),
        ("transform", ["nibabel/processing.py resample_to_output"]),
        ("decode", ["SimpleITK/SimpleITK.py ImageFileReader.Execute", "SimpleITK/extra.py ReadImage"]),
        ("convert", ["SimpleITK/extra.py GetArrayFromImage"]),
        ("transform", ["SimpleITK/SimpleITK.py ResampleImageFilter.Execute", "SimpleITK/SimpleITK.py Resample"]),
        ("transform", ["albumentations/augmentations/geometric/functional.py resize"]),
        ("convert", ["albumentations/pytorch/transforms.py ToTensorV2.apply"]),
        ("transform", ["kornia/geometry/transform/imgwarp.py warp_perspective"]),
        ("decode", ["kornia/io/io.py load_image"]),
        # sound and video
        ("decode", ["soundfile.py SoundFile._cdata_io", "soundfile.py SoundFile.read", "soundfile.py read"]),
        (
            "decode",
            ["soundfile.py SoundFile.read", "librosa/core/audio.py __soundfile_load", "librosa/core/audio.py load"],
        ),
        ("transform", ["soxr/__init__.py resample", "librosa/core/audio.py resample", "librosa/core/audio.py load"]),
        ("transform", ["librosa/core/spectrum.py stft", "librosa/feature/spectral.py melspectrogram"]),
        ("decode", ["torchaudio/_backend/soundfile_backend.py load", "torchaudio/_backend/utils.py load"]),
        ("decode", ["torchaudio/_torchcodec.py load_with_torchcodec", "torchaudio/__init__.py load"]),
        (
            "transform",
            ["torchaudio/functional/functional.py spectrogram", "torchaudio/transforms/_transforms.py forward"],
        ),
        (
            "decode",
            ["decord/_ffi/_ctypes/function.py FunctionBase.__call__", "decord/video_reader.py VideoReader.get_batch"],
        ),
        # text
        ("tokenise", ["tokenizers/implementations/base_tokenizer.py BaseTokenizer.encode"]),
        (
            "tokenise",
            [
                "transformers/tokenization_utils_fast.py PreTrainedTokenizerFast._batch_encode_plus",
                "transformers/tokenization_utils_base.py PreTrainedTokenizerBase.__call__",
            ],
        ),
        ("convert", ["transformers/tokenization_utils_base.py PreTrainedTokenizerBase.batch_decode"]),
        (
            "transform",
            ["transformers/image_transforms.py resize", "transformers/models/vit/image_processing_vit.py preprocess"],
        ),
        (
            "tokenise",
            ["nltk/tokenize/treebank.py TreebankWordTokenizer.tokenize", "nltk/tokenize/__init__.py word_tokenize"],
        ),
        ("read", ["nltk/corpus/reader/util.py StreamBackedCorpusView.iterate_from"]),
        ("tokenise", ["spacy/language.py Language.make_doc", "spacy/language.py Language.__call__"]),
        # molecules and graphs
        ("decode", ["rdkit/Chem/__init__.py MolFromSmiles"]),
        ("transform", ["rdkit/Chem/AllChem.py GetMorganFingerprintAsBitVect"]),
        ("transform", ["torch_geometric/utils/subgraph.py k_hop_subgraph"]),
        ("convert", ["torch_geometric/data/separate.py separate", "torch_geometric/data/in_memory_dataset.py get"]),
        ("transform", ["dgl/sampling/neighbor.py sample_neighbors"]),
        ("convert", ["dgl/convert.py from_networkx"]),
        ("transform", ["networkx/algorithms/shortest_paths/weighted.py dijkstra_path"]),
        ("decode", ["networkx/readwrite/gml.py parse_gml"]),
        # databases and remote stores
        ("read", [f"{PYTHON}/sqlite3/dbapi2.py convert_timestamp"]),
        ("read", ["lmdb/cffi.py Transaction.get"]),
        (
            "network",
            [f"{PYTHON}/ssl.py SSLSocket.read", "urllib3/response.py HTTPResponse.read", "requests/models.py read"],
        ),
        ("network", ["botocore/httpsession.py URLLib3Session.send", "boto3/s3/inject.py download_fileobj"]),
        ("read", ["fsspec/implementations/local.py LocalFileOpener.read"]),
        (
            "network",
            [f"{PYTHON}/threading.py Event.wait", "fsspec/asyn.py sync", "fsspec/spec.py AbstractFileSystem.cat_file"],
        ),
        ("read", [f"{PYTHON}/tarfile.py _FileInFile.read", "webdataset/tariterators.py tar_file_iterator"]),
        ("decode", ["webdataset/autodecode.py imagehandler.__call__", "webdataset/filters.py _map"]),
        ("network", ["litdata/streaming/downloader.py S3Downloader.download_file"]),
        ("decode", ["litdata/streaming/serializers.py JPEGSerializer.deserialize"]),
        ("read", ["litdata/streaming/item_loader.py PyTreeLoader.load_item_from_chunk"]),
    ],
)
def test_a_package_is_known_by_what_its_function_does(group: str, frames: list[str]) -> None:
    assert function_group(stack(*frames)) == group


@pytest.mark.parametrize(
    ("group", "source"),
    [
        ("lookup", "row = self.rows.iloc[index]"),
        ("lookup", "keep = pc.equal(self.table['id'], key)"),
        ("lookup", "row = self.table.slice(index, 1)"),
        ("tokenise", "ids = tokenizer(text, truncation=True)"),
        ("tokenise", "ids = self.tokenizer.encode(text)"),
        ("tokenise", "words = word_tokenize(text)"),
        ("tokenise", "doc = nlp(text)"),
        ("convert", "text = tokenizer.decode(ids)"),
        ("read", "row = self.database.execute(QUERY, (key,)).fetchone()"),
        ("read", "value = txn.get(key)"),
        ("decode", "sample = pickle.loads(txn.get(key))"),
        ("decode", "table = pd.read_parquet(path)"),
        ("decode", "okay, frame = self.cap.read()"),
        ("decode", "for frame in container.decode(video=0):"),
        ("decode", "molecule = Chem.MolFromSmiles(text)"),
        ("transform", "bits = AllChem.GetMorganFingerprintAsBitVect(molecule, 2)"),
        # Neither rows of a table nor decoding: a dict, a list, and a name in bytes.
        ("other", "record = self.records[key]"),
        ("other", "match = [row for row in self.rows if row[0] == key]"),
        ("other", 'name = header.decode("utf-8")'),
        ("other", "position = self.keys.index(key)"),
    ],
)
def test_a_call_into_c_is_known_by_its_line(group: str, source: str) -> None:
    assert function_group([["/home/me/data.py", 7, "Rows.__getitem__", source, True]]) == group


def test_the_package_at_work_is_named_and_a_standard_library_is_none() -> None:
    lookup = work_of(stack("pandas/core/indexing.py _LocationIndexer.__getitem__"))
    assert (lookup.group, lookup.package) == ("lookup", "pandas")
    assert work_of(stack("soundfile.py read")).package == "soundfile"
    assert work_of(stack(f"{PYTHON}/gzip.py GzipFile.read")).package is None


def test_a_users_function_that_a_table_calls_is_the_users() -> None:
    inner = ["/home/me/data.py", 9, "clean", "return text.strip()", True]
    assert function_group([inner, *stack("pandas/core/apply.py SeriesApply.apply")]) == "other"


@pytest.mark.parametrize(
    "path",
    [
        "/srv/av/.venv/lib/python3.11/site-packages/numpy/_core/fromnumeric.py",
        "/home/pandas/.venv/lib/python3.11/site-packages/einops/einops.py",
    ],
)
def test_the_folder_of_an_environment_says_nothing(path: str) -> None:
    assert function_group([[path, 1, "take", "", False], OWN]) == "other"


def test_a_users_own_file_may_have_the_name_of_a_library() -> None:
    assert function_group([["/home/me/queue.py", 7, "get", "return 1", True]]) == "other"


def test_every_package_says_something() -> None:
    assert all(package.parts or package.group for package in PACKAGES)
    assert all(part.path or part.function or part.source for package in PACKAGES for part in package.parts)
