"""A measured factor in words."""

from flatout.compare.ratio import Ratio
from flatout.report.ratios import bounds, faster


def test_a_factor_stands_before_its_interval() -> None:
    assert faster(Ratio(1.84, 1.76, 1.92, 2)) == "1.84x as fast (1.76x to 1.92x, 90% interval)"
    assert bounds(Ratio(7.3, 6.64, 8.0, 2)) == "6.6x to 8.0x"


def test_of_a_wide_interval_the_middle_promises_nothing() -> None:
    said = faster(Ratio(7.3, 1.1, 23.6, 2))
    assert said == "faster, 1.10x to 24x (90% interval; runs differ too much to say more)"
