"""What a staging says at its end fits a terminal of 80 columns, and loses no word."""

from __future__ import annotations

from dataclasses import replace

from flatout.report.staging import outlook_lines, summary_lines
from flatout.stage.outlook import Outlook
from flatout.stage.progress import Summary
from flatout.stage.sources.skipped import LeftOut

NAME = "n02101388/" + "ILSVRC2012_val_00012345_" * 5 + ".JPEG"


def summary() -> Summary:
    return Summary(
        source="s3://b/x", destination="/d", copied=12_345_678, copied_bytes=10**14, changed=0, n_dropped=2,
        dropped_examples=(NAME,), kept=3, n_failed=0, in_the_way=0, failed_examples=(),
        n_refused=3, refused_examples=(f"{NAME!r}: a name",), refused_reasons={"a name": LeftOut(3, repr(NAME))},
        n_gone=1_234_567, gone_examples=(NAME,), pruned=0, gone_changed=0, gone_yours=0,
        not_pruned="that would remove 1,234,567 of the 2,345,678 files that were staged, which is more than half: "
        "--prune-most removes them",
        adopted=1, verified={"md5": 1_000_000, "size only (its checksum of parts could not be compared)": 3},
        duration_s=12_345.0, files_per_s=12_345.0, bytes_per_s=1e9, retries=2, slow_downs=1, peak_concurrency=128,
        total_files=3, total_bytes=10**9, classes=None, manifest="/m",
    )  # fmt: skip


def test_a_summary_fits_80_columns_and_keeps_every_word() -> None:
    text = summary_lines(summary())
    assert max(map(len, text.splitlines())) <= 80
    assert NAME in text.replace("\n    ", "") and "--prune-most removes them" in " ".join(text.split())


def test_what_was_left_out_is_counted_by_reason() -> None:
    reasons = {"a loop": LeftOut(1, "'up'"), "control characters in the name": LeftOut(5, "'a'")}
    text = summary_lines(replace(summary(), n_refused=6, refused_reasons=reasons))
    assert "6 left out:\n    5 control characters in the name: such as 'a'\n    1 a loop: 'up'\n" in text
    many = {f"reason {number}": LeftOut(1, "x") for number in range(9)}
    text = summary_lines(replace(summary(), n_refused=9, refused_reasons=many))
    assert "3 for 3 other reasons (--json has them all)" in text


def test_a_prediction_fits_80_columns() -> None:
    outlook = Outlook(
        files=12_345_678, bytes=10**13, missing_files=12_345_678, missing_bytes=10**13, n_refused=7,
        unlisted=(f"{NAME}: Permission denied",), free_bytes=10**9, fits=False, classes=1_000, tried_files=64,
        tried_concurrency=32, predicted_s=98_765.4,
    )  # fmt: skip
    text = outlook_lines("s3://b/x", outlook)
    assert max(map(len, text.splitlines())) <= 80 and "a prediction from reading 64 of the files" in " ".join(
        text.split()
    )
