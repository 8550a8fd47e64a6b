"""Results of memoized functions as bytes and back: what is kept as it was, and what is not kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
import pytest
import torch
from PIL import Image

from flatout.probe.packed_results import pack, unpack

NEW_PANDAS = pytest.mark.skipif(int(pandas.__version__.split(".")[0]) < 3, reason="before pandas 3 tables share memory")


def marked(tensor: torch.Tensor) -> torch.Tensor:
    tensor.index = 3  # type: ignore[attr-defined]
    return tensor


ARRAY = np.arange(12, dtype=np.float32).reshape(3, 4)
TENSOR = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "result",
    [
        3,
        "text",
        (1, [2.5, None], {"a": b"b"}),
        {"ids": [1, 2], "mask": ARRAY},
        np.asfortranarray(ARRAY),
        np.float32(2.5),
        np.asarray(Image.new("RGB", (4, 3), (1, 2, 3))),
        TENSOR,
        TENSOR.permute(2, 0, 1),
        torch.tensor(3),
        Image.new("RGB", (4, 3), (1, 2, 3)),
    ],
)
def test_results_come_back_as_they_were(result: Any) -> None:
    made = pack(result)
    assert made is not None
    assert made == pack(result)
    back = unpack(made)
    assert type(back) is type(result)
    if isinstance(result, np.ndarray):
        assert back.flags.writeable == result.flags.writeable
        assert back.strides == result.strides
    assert repr(back) == repr(result) or back.tobytes() == result.tobytes()
    if isinstance(result, torch.Tensor):
        assert back.stride() == result.stride()
        back += 1  # a copy of its own
        assert pack(result) == made


class Graph:
    """What a data set of the user's may return."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


class Slotted:
    __slots__ = ("x",)


class Kept(Graph):
    def __getstate__(self) -> Any:
        return {}


class Record(NamedTuple):
    x: Any
    name: str


def test_objects_of_the_users_and_named_tuples_come_back_with_their_attributes() -> None:
    graph = Graph(x=TENSOR, edges=[Graph(index=3)], record=Record(ARRAY, "a"))
    made = pack(graph)
    assert made is not None and made == pack(graph)
    back = unpack(made)
    assert type(back) is Graph and torch.equal(back.x, TENSOR) and back.x is not TENSOR
    assert back.edges[0].index == 3 and type(back.record) is Record and back.record.name == "a"


@pytest.mark.parametrize(
    "result",
    [
        Slotted(),
        Kept(x=1),
        Graph(model=torch.nn.Linear(2, 2)),
        Graph(x=ARRAY, y=ARRAY),
        ValueError("a"),
        Path("a"),
        object(),
        iter([1]),
        ARRAY[:, ::2],
        TENSOR[:, ::2],
        TENSOR.clone().requires_grad_(),
        {1, 2},
        lambda: None,
        np.array([object()]),
        (ARRAY, ARRAY),
        (TENSOR, TENSOR[0]),
        torch.zeros(2, dtype=torch.complex64).conj(),
        marked(torch.zeros(2)),
    ],
)
def test_what_may_come_back_as_something_else_is_not_kept(result: Any) -> None:
    assert pack(result) is None


def test_an_array_of_a_mapped_file_is_not_kept(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", ARRAY)
    mapped = np.load(tmp_path / "array.npy", mmap_mode="r")
    assert pack(mapped) is None
    assert pack(np.asarray(mapped)) is None
    assert pack(np.asarray(mapped)[1:]) is None


def table() -> pandas.DataFrame:
    days = pandas.date_range("2000-01-01", periods=300)
    return pandas.DataFrame({"day": days, "flow": np.arange(300.0)[::-1], "name": [f"b{n % 7}" for n in range(300)]})


@NEW_PANDAS
@pytest.mark.parametrize(
    "made", [lambda: table().sort_values("flow"), lambda: table().set_index("day"), lambda: table()["flow"]]
)
def test_tables_are_kept_with_their_types_and_their_order(made: Any) -> None:
    kept = pack({"table": made(), "number": 3})
    assert kept is not None and kept == pack({"table": made(), "number": 3})
    back = unpack(kept)["table"]
    assert back.equals(made()) and type(back) is type(made())
    assert back.index.equals(made().index) and str(back.index.dtype) == str(made().index.dtype)
    back.iloc[0] = back.iloc[1]  # it may be written to, and the kept one stays
    assert unpack(kept)["table"].equals(made())


@NEW_PANDAS
def test_what_shares_memory_or_is_there_twice_is_not_kept() -> None:
    one, numbers = table(), [1, 2]
    assert pack({"a": one, "b": one}) is None
    assert pack([numbers, numbers]) is None
    assert pack((one, one["flow"].to_numpy())) is None
    assert pack((one, torch.from_numpy(one["flow"].to_numpy(copy=True)))) is not None
    assert pack((one, one["flow"])) is not None  # each has its own once it is written to
    assert pack((np.float32(3), np.float32(3), (1, 2), (1, 2))) is not None
    scalar, pair = np.float64(2), (1, 2)
    assert pack((scalar, scalar, pair, pair)) is not None
    for other in (one.sort_values("flow"), pandas.DataFrame(np.arange(12.0).reshape(4, 3))):
        assert pack(other) is not None


def test_tables_of_anything_are_not_kept() -> None:
    assert pack(pandas.DataFrame({"a": [object(), object()]})) is None
    noted = table()
    noted.attrs["from"] = "somewhere"
    assert pack(noted) is None
