"""The end of what a command printed."""

from __future__ import annotations

from pathlib import Path

from flatout.trials.printed import last_lines


def test_bars_colours_and_bytes_that_are_no_text_leave_readable_lines(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_bytes(
        b"old\n" + b"\r10%\r20%\n\x1b[1mepoch 1\x1b[0m: loss 0.5\n" + bytes(range(128, 256)) * 9 + b"\n\0\1\2\3\n\n"
    )
    assert last_lines(log) == ("old", "20%", "epoch 1: loss 0.5")
    assert last_lines(log, 4) == ("20%", "epoch 1: loss 0.5")
    log.write_text("word " * 999)
    (line,) = last_lines(log)
    assert len(line) <= 200 and line.endswith(" ...")
    assert last_lines(tmp_path / "none") == ()
