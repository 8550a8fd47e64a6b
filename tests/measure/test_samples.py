"""Stack samples become lines of code."""

from __future__ import annotations

import pytest

from flatout.measure.samples import top_lines
from flatout.results import Line


def test_a_line_with_a_lambda_or_a_comprehension_on_it_is_one_line() -> None:
    call = Line("train.py", 12, "main", "order = sorted(rows, key=lambda row: row.size)", 0.0)
    inner = Line("train.py", 12, "<lambda>", "order = sorted(rows, key=lambda row: row.size)", 0.0)
    other = Line("train.py", 13, "main", "rows.clear()", 0.0)
    found = top_lines({inner: 1.0, other: 2.0, call: 5.0}, seconds=16.0)
    assert [(line.line, line.function) for line in found] == [(12, "main"), (13, "main")]
    assert [line.seconds for line in found] == pytest.approx([12.0, 4.0])
