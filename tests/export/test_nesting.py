import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from flatout.export.nesting import nested

SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)), max_size=40)


def rows_of(spans: list[tuple[int, int]]) -> list[list[tuple[int, bool]]]:
    start = np.array([begin for begin, _ in spans], np.int64)
    edges = nested(start, start + np.array([length for _, length in spans], np.int64))
    found: list[list[tuple[int, bool]]] = [[] for _ in range(edges.rows)]
    for span, is_end in zip(edges.span.tolist(), edges.is_end.tolist(), strict=True):
        found[edges.row[span]].append((span, is_end))
    return found


@given(SPANS)
def test_each_span_begins_and_ends_once_inside_the_one_it_began_in(spans: list[tuple[int, int]]) -> None:
    seen = []
    for row in rows_of(spans):
        inside: list[int] = []
        time = -1
        for span, is_end in row:
            begin, length = spans[span]
            moment = begin + length if is_end else begin
            assert moment >= time
            time = moment
            if is_end:
                assert inside.pop() == span
                seen.append(span)
            else:
                inside.append(span)
        assert inside == []
    assert sorted(seen) == list(range(len(spans)))


def test_spans_that_overlap_get_rows_of_their_own_and_nested_ones_share_one() -> None:
    assert len(rows_of([(100, 100), (150, 150)])) == 2
    assert len(rows_of([(0, 100), (10, 20), (10, 5), (50, 0), (100, 10)])) == 1


def test_of_two_that_begin_together_the_longer_one_is_the_outer_one() -> None:
    (row,) = rows_of([(5, 1), (5, 9)])
    assert row == [(1, False), (0, False), (0, True), (1, True)]
