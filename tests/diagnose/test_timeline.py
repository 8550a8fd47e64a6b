import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.measure.timeline import GAP, Accrual, exclusive_pieces, intervals, overlay, union

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), max_size=25)


def cut(*pairs, begin=0, finish=100, **flags):
    start = np.array([pair[0] for pair in pairs], np.int64)
    end = np.array([pair[1] for pair in pairs], np.int64)
    flags = {name: np.array(values) for name, values in flags.items()}
    pieces = exclusive_pieces(start, end, begin, finish, **flags)
    return list(zip(pieces.start.tolist(), pieces.end.tolist(), pieces.owner.tolist(), strict=True))


def test_a_span_keeps_what_its_children_leave():
    assert cut((20, 30), (10, 50)) == [(0, 10, GAP), (10, 20, 1), (20, 30, 0), (30, 50, 1), (50, 100, GAP)]


def test_of_equal_spans_the_one_that_ended_first_is_the_inner_one():
    assert cut((10, 50), (10, 50)) == [(0, 10, GAP), (10, 50, 0), (50, 100, GAP)]


def test_an_absorbing_span_keeps_all_but_what_escapes():
    pieces = cut((10, 20), (30, 40), (0, 100), absorbs=[False, False, True], escapes=[False, True, False])
    assert pieces == [(0, 30, 2), (30, 40, 1), (40, 100, 2)]


def test_a_span_that_outlasts_its_parent_is_cut_off():
    assert cut((0, 50), (30, 70)) == [(0, 30, 0), (30, 50, 1), (50, 100, GAP)]


def test_spans_outside_the_interval_are_cut_to_it():
    assert cut((0, 20), (90, 200), begin=10) == [(10, 20, 0), (20, 90, GAP), (90, 100, 1)]


def test_no_span_is_one_gap():
    assert cut() == [(0, 100, GAP)]


@given(spans)
def test_pieces_fill_the_interval_without_overlap(pairs):
    pieces = cut(*((start, start + length) for start, length in pairs))
    assert pieces[0][0] == 0 and pieces[-1][1] == 100
    assert all(one[1] == two[0] for one, two in itertools.pairwise(pieces))
    assert all(start < end for start, end, _ in pieces)


@given(st.data())
def test_nested_spans_own_their_length_minus_their_children(data):
    pairs, expected = [], {}

    def lay(begin, end, depth):
        inner = 0
        cursor = begin
        while depth and cursor < end and data.draw(st.booleans()):
            start = data.draw(st.integers(cursor, end - 1))
            stop = data.draw(st.integers(start + 1, end))
            lay(start, stop, depth - 1)
            inner, cursor = inner + stop - start, stop
        expected[len(pairs)] = end - begin - inner
        pairs.append((begin, end))

    lay(0, 100, 3)
    owned = dict.fromkeys(expected, 0)
    for start, end, owner in cut(*pairs):
        owned[owner] += end - start
    assert owned == expected


@given(spans, spans)
def test_overlay_keeps_the_base_and_finds_the_cover(base_pairs, cover_pairs):
    base, cover = (union([s for s, _ in p], [s + d for s, d in p]) for p in (base_pairs, cover_pairs))
    cutting = overlay(base, cover)
    assert int((cutting.end - cutting.start).sum()) == int(base.length.sum())
    ticks = np.arange(100)
    both = (base.at(ticks) >= 0) & (cover.at(ticks) >= 0)
    assert int((cutting.end - cutting.start)[cutting.cover >= 0].sum()) == both.sum()


def test_accrual_measures_partly_covered_intervals_with_weights():
    origin = 10**15
    accrual = Accrual(intervals([origin, origin + 50], [origin + 10, origin + 70]), np.array([1.0, 0.5]))
    assert accrual.between([origin - 5, origin + 5], [origin + 5, origin + 60]) == pytest.approx([5.0, 10.0])


def test_nothing_accrues_without_intervals():
    assert Accrual(intervals([], [])).between([0, 5], [10, 10]).tolist() == [0.0, 0.0]
