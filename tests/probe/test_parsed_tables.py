"""Tables that are parsed once: the same values as without the setting, and nothing that the program can spoil."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flatout.runner.command import injecting_environment

pytestmark = pytest.mark.slow

pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")

READS = """
import os, pathlib, sys, warnings
import pandas as pd, pyarrow as pa, pyarrow.parquet as pq, torch
warnings.simplefilter("ignore")

def settled(path):
    os.utime(path, ns=(10**18, 10**18))

"""


def printed(folder: Path, code: str, **settings: Any) -> tuple[list[str], str]:
    (folder / "reading.py").write_text(READS + code)
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings)}
    done = subprocess.run(
        [sys.executable, "reading.py"], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@pytest.fixture
def table(tmp_path: Path) -> Path:
    frame = pd.DataFrame({"a": [1.5, 2.5, None], "b": ["x", "y", "z"], "c": [1, 2, 3]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.loc[:0, ["a", "c"]].to_parquet(tmp_path / "a.parquet")
    frame.assign(d=[[1], [2], [3]]).to_parquet(tmp_path / "lists.parquet")
    for path in tmp_path.iterdir():
        os.utime(path, ns=(10**18, 10**18))
    time.sleep(2.1)  # what was written less than two seconds ago is not kept
    return tmp_path


# What a program may do with a table, four times: its later readings are as the first.
USES = """
def digest(frame):
    return frame.to_json() + str(frame.dtypes.to_dict())

for number in range(4):
    csv = pd.read_csv("t.csv")
    typed = pd.read_csv(pathlib.Path("t.csv"), dtype={"c": "float32"}, usecols=["a", "c"])
    frame = pd.read_parquet("t.parquet")
    own = pd.read_csv("t.csv", converters={"a": lambda text: text + "!"})
    lists = pd.read_parquet("lists.parquet")
    arrow = pq.read_table("t.parquet", columns=["a", "c"])
    print(digest(csv), digest(typed), digest(frame), digest(own), digest(lists), arrow.to_pydict())
    csv.loc[0, "a"] = -1.0
    csv["new"] = 3
    typed.drop(columns="c", inplace=True)
    frame.iloc[:, 0] += 1
    lists.at[0, "d"] = "gone"
    arrow.append_column("d", pa.array([1, 2, 3]))
"""


def test_what_a_program_does_with_a_table_changes_no_later_one(table: Path) -> None:
    before, _ = printed(table, USES)
    seen, said = printed(table, USES, table_cache_bytes=1 << 28)
    assert seen == before and len(set(seen)) == 1, said


ARRAYS = """
pd.DataFrame({"a": [1.5, 2.5], "b": [3.5, 4.5], "n": [1, 2]}).to_csv("floats.csv", index=False)
settled("floats.csv")
for number in range(4):
    for chosen in (["a", "b"], ["a"], ["n"], None):
        frame = pd.read_csv("floats.csv", usecols=chosen)
        for array in (frame.values, frame[frame.columns[0]].values, frame.index.values, frame.to_numpy()):
            print(array.flags.writeable, array.flags.c_contiguous, array.flags.f_contiguous, end=" ")
            if array.flags.writeable:
                array += 1
        print(frame.values.tolist())
"""


def test_arrays_of_a_table_can_be_written_to_as_those_of_one_that_was_read(table: Path) -> None:
    before, _ = printed(table, ARRAYS)
    seen, said = printed(table, ARRAYS, table_cache_bytes=1 << 28)
    assert seen == before and len(seen) == 16, said


WORKERS = """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 30
    def __getitem__(self, index):
        return torch.tensor(float(pq.read_table("t.parquet").column("c")[index % 3].as_py()))

if __name__ == "__main__":
    for _ in range(2):
        rows = torch.utils.data.DataLoader(Rows(), 5, num_workers=2, persistent_workers=True)
        print([batch.tolist() for batch in rows])
    torch.ones(1, requires_grad=True).sum().backward()
"""


def test_workers_keep_what_they_read_and_it_took_effect(table: Path) -> None:
    seen, said = printed(table, WORKERS, table_cache_bytes=1 << 28)
    assert seen == [str([[float(place % 3 + 1) for place in range(start, start + 5)] for start in range(0, 30, 5)])] * 2
    assert said == f"flatout: set table_cache_bytes={1 << 28}\n"


OPTIONS = """
warnings.simplefilter("always")
for infer in (True, True, True, False):
    with pd.option_context("future.infer_string", infer):
        print(pd.read_csv("t.csv").dtypes["b"])
for _ in range(3):
    frame = pd.read_parquet("t.parquet", dtype_backend="pyarrow")
    torch.frombuffer(frame["c"].array._pa_array.chunk(0).buffers()[1], dtype=torch.int64).add_(1)
    print(frame["c"].tolist())
with warnings.catch_warnings(record=True) as told:
    pd.read_csv("bad.csv", on_bad_lines="warn")
os.makedirs("folder", exist_ok=True)
for number in range(4):
    pd.DataFrame({"a": [number]}).to_parquet("folder/part.parquet")
    os.utime("folder", ns=(10**18, 10**18))
    print(pd.read_parquet("folder")["a"].tolist())
print(os.path.basename(told[0].filename))
"""


def test_options_arrow_memory_and_the_lines_of_warnings(table: Path) -> None:
    (table / "bad.csv").write_text("a,b\n1,2\n1,2,3\n")
    before, _ = printed(table, OPTIONS)
    seen, said = printed(table, OPTIONS, table_cache_bytes=1 << 28)
    assert seen == before and seen[-1] == "reading.py", said


CHANGED = """
for number in range(3):
    for text in ("1,2", "3,4", "5,6"):
        with open("new.csv", "w") as file:
            file.write("a,b\\n" + text)
        if number:  # its time tells nothing of the first
            settled("new.csv")
        print(pd.read_csv("new.csv").values.tolist(), pd.read_csv("new.csv").values.tolist())
        os.remove("new.csv")
"""


def test_a_file_that_is_written_anew_is_read_anew(table: Path) -> None:
    seen, said = printed(table, CHANGED.replace("settled(", "len("), table_cache_bytes=1 << 28)
    assert seen == [f"[[{a}, {b}]] [[{a}, {b}]]" for _ in range(3) for a, b in ((1, 2), (3, 4), (5, 6))], said


# A tensor of an Arrow table's own memory, which can be written to though the array cannot.
WRITES = """
for _ in range(6):
    column = pq.read_table("t.parquet", columns=["c"]).column("c").chunk(0).to_numpy()
    torch.from_numpy(column).add_(1)
    print(column.tolist())
"""


def test_a_table_that_is_written_to_is_read_from_then_on(table: Path) -> None:
    seen, said = printed(table, WRITES, table_cache_bytes=1 << 28)
    assert seen[-2:] == ["[2, 3, 4]"] * 2, said
    assert "table_cache_bytes could not be set: the program writes to a table that cannot be written to" in said


FASTER = """
reads = []
original = pq.ParquetFile.read
def read(self, *args, **kwargs):
    reads.append(1)
    return original(self, *args, **kwargs)
pq.ParquetDataset.read, whole = read, pq.ParquetDataset.read
original = whole
for _ in range(10):
    pq.read_table("t.parquet")
    pq.read_table("a.parquet")
print(len(reads))
"""


@pytest.mark.parametrize(("room", "reads"), [(1 << 28, 4), (20, 12), (80, 20), (10, 20)])
def test_a_file_is_parsed_twice_where_it_fits(table: Path, room: int, reads: int) -> None:
    seen, said = printed(table, FASTER, table_cache_bytes=room)
    assert seen == [str(reads)], said
