"""What measured ceilings say: shares that add up, and lines that fit."""

from __future__ import annotations

import pytest

from flatout import cli
from flatout.ceilings.measuring import Ceilings
from flatout.report.ceilings import lines


@pytest.mark.parametrize(
    ("rates", "parts"),
    [
        # train, device, loader cold, loader warm
        ((100, 400, 125, 200), {"device": 0.25, "preparation": 0.25, "io": 0.3, "overlap_loss": 0.2}),
        ((100, 100, 500, 900), {"device": 1.0, "preparation": 0.0, "io": 0.0, "overlap_loss": 0.0}),
        ((100, 400, 100, None), {"device": 0.25, "preparation": 0.75, "io": 0.0, "overlap_loss": 0.0}),
        ((100, 400, 90, 80), {"device": 0.25, "preparation": 0.75, "io": 0.0, "overlap_loss": 0.0}),
        ((100, 400, None, None), {}),
    ],
)
def test_the_parts_of_a_samples_time_add_up(
    rates: tuple[float, float, float | None, float | None], parts: dict[str, float]
) -> None:
    found = Ceilings(*rates)
    assert found.parts() == pytest.approx(parts)
    text = lines(found)
    assert max(map(len, text)) <= 80
    factor = "4.0x" if rates[1] == 400 else "1.00x"
    assert text[0] == f"Batches that cost nothing would make this training {factor} as fast."
    assert ("not measured" in " ".join(text)) is (rates[2] is None or rates[3] is None)


def test_without_a_command_it_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ceilings"]) == 2
    assert "write it after `--`" in capsys.readouterr().err
