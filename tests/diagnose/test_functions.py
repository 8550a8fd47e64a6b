import pytest

from flatout.measure.fetch_functions import sampled_functions
from flatout.measure.functions import RULES, function_group, work_of
from flatout.measure.input_functions import InputFunctions, in_fetch
from flatout.measure.samples import stack_samples
from flatout.probe import events as kinds
from flatout.record import load_run
from tests.record.synthetic import RunBuilder

SITE = "/venv/lib/python3.11/site-packages"


def user(source, function="Photos.__getitem__"):
    return ["/home/me/data.py", 7, function, source, True]


def library(path, function, source=""):
    return [f"{SITE}/{path}", 1, function, source, False]


@pytest.mark.parametrize(
    ("group", "source"),
    [
        ("decode", "image = cv2.imdecode(buffer, cv2.IMREAD_COLOR)"),
        ("decode", "image = Image.open(path)"),
        ("decompress", "data = zlib.decompress(block)"),
        ("read", "volume = np.load(path)"),
        ("read", "data = file.read()"),
        ("read", "with open(path, 'rb') as file:"),
        ("transform", "image = cv2.resize(image, (224, 224))"),
        ("transform", "return self.transform(image)"),
        ("convert", "return torch.from_numpy(image)"),
        ("convert", "image = image.astype(np.float32)"),
        ("convert", "image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)"),
        ("lock", "with self.lock:"),
        ("network", "body = client.get_object(Bucket=b, Key=k)"),
        ("other", "total = sum(values)"),
    ],
)
def test_a_line_that_calls_into_c_is_known_by_its_text(group, source):
    assert function_group([user(source)]) == group


@pytest.mark.parametrize(
    ("group", "path", "function"),
    [
        ("decode", "PIL/ImageFile.py", "ImageFile.load"),
        ("transform", "PIL/Image.py", "Image.resize"),
        ("transform", "torchvision/transforms/_functional_tensor.py", "resize"),
        ("convert", "torchvision/transforms/functional.py", "to_tensor"),
        ("network", "urllib3/connectionpool.py", "HTTPConnectionPool.urlopen"),
        ("decompress", "numcodecs/blosc.py", "decompress"),
        ("read", "h5py/_hl/dataset.py", "Dataset.__getitem__"),
        ("decode", "pandas/io/parsers/readers.py", "read_csv"),
        ("transform", "pandas/core/frame.py", "DataFrame.merge"),
        ("decode", "pyarrow/parquet/core.py", "read_table"),
    ],
)
def test_a_library_frame_is_known_by_its_module(group, path, function):
    assert function_group([library(path, function), user("x = thing(y)")]) == group


def test_an_unknown_library_frame_leaves_it_to_the_frame_that_called_it():
    frames = [library("wrapt/wrappers.py", "__call__"), library("gzip.py", "GzipFile.read"), user("open(path)")]
    assert function_group(frames) == "decompress"


def test_frames_outside_the_innermost_user_frame_do_not_count():
    assert function_group([user("total += 1"), library("torchvision/transforms/transforms.py", "forward")]) == "other"


def test_a_stack_without_frames_is_other():
    assert function_group([]) == "other"


def test_no_rule_matches_everything():
    assert all(rule.path or rule.function or rule.source or rule.inside for rule in RULES)


def test_source_files_that_a_stack_trace_reads_are_no_data():
    seed = ["/home/me/data.py", 9, "Fake.__getitem__", "torch.manual_seed(index)", True]
    trace = library("torch/cuda/__init__.py", "_lazy_call", "traceback.format_stack()")
    lines = ["/usr/lib/python3.12/linecache.py", 140, "updatecache", "lines = fp.readlines()", False]
    decoder = ["<frozen codecs>", 322, "BufferedIncrementalDecoder.decode", "", False]
    for inner in ([lines], [decoder, lines]):
        assert function_group([*inner, trace, seed]) == "other"
    assert function_group([["/usr/lib/python3.12/pathlib.py", 3, "Path.read_text", "f.read()", False], seed]) == "read"


def test_samples_between_the_calls_of_a_line_are_the_work_of_its_calls(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    line = user("numbers = torch.tensor([float(row[c]) for c in self.columns])")
    row = library("pandas/core/series.py", "Series.__getitem__")
    other = ["/home/me/data.py", 9, "Photos.__getitem__", "total = sum(values)", True]
    for place, frames in enumerate([[line], [line], [line], [row, line], [other]]):
        main.emit(kinds.STACK, place, place, main.name("stack", frames=frames), 10**9, ord("R"))
    process = load_run(run.write()).processes[0]
    found = sampled_functions([stack_samples(process.events, process.names)])
    assert found.cpu_groups == {"lookup": pytest.approx(0.8), "other": pytest.approx(0.2)}


def test_the_users_functions_of_a_fetch_have_the_time_of_what_they_call(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    loop = ["/home/me/train.py", 3, "train", "for x in loader:", True]
    fetch = library("torch/utils/data/_utils/fetch.py", "_MapDatasetFetcher.fetch")
    item, listed = user("self.load(i)"), user("[f(x) for x in y]", "Photos.__getitem__.<locals>.<listcomp>")
    load = user("Image.open(path)", "Photos.load")
    stacks = [[item], [load, item], [library("PIL/Image.py", "open"), load, item], [listed, item]]
    for place, frames in enumerate(stacks):
        main.emit(kinds.STACK, place, place, main.name("stack", frames=[*frames, fetch, loop]), 10**9, ord("R"))
    process = load_run(run.write()).processes[0]
    functions = InputFunctions()
    functions.add(stack_samples(process.events, process.names), in_fetch)
    outer, inner = functions.found()
    assert (outer.name, outer.cpu_share, outer.blocked_share) == ("Photos.__getitem__", pytest.approx(1.0), 0.0)
    assert outer.below == (pytest.approx(0.5), 0.0)
    assert (inner.name, inner.cpu_share, inner.below) == ("Photos.load", pytest.approx(0.5), (0.0, 0.0))


def test_a_tokenizer_of_ones_own_is_known_by_the_names_of_its_functions():
    inner = user("best = min(pairs, key=rank)", "merge")
    assert function_group(
        [inner, user("self.merge(word)", "SubwordTokenizer.encode"), user("x", "Collate.__call__")]
    ) == ("tokenise")
    assert function_group([inner, user("self.merge(word)", "Table.join")]) == "other"


@pytest.mark.parametrize(
    ("package", "frames"),
    [
        ("json", [["/usr/lib/python3.11/json/decoder.py", 353, "JSONDecoder.raw_decode", "scan_once(s, idx)", False]]),
        ("orjson", [user("record = orjson.loads(file.read())[index]")]),
        ("ET", [user("root = ET.parse(path).getroot()")]),
        ("csv", [user("rows = list(csv.DictReader(file))")]),
        ("numpy", [library("numpy/lib/_npyio_impl.py", "_read", "next_arr = _load_from_filelike(")]),
        (None, [user("image = Image.open(path)")]),
    ],
)
def test_parsers_are_named(package, frames):
    work = work_of([*frames, user("return self.load(index)")])
    assert (work.group, work.package) == ("decode", package)
