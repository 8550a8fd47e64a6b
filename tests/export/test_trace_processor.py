"""Traces opened in Perfetto's own user interface, and asked by SQL what it has read."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.cli import main
from tests.export.test_run_tracks import BATCHES, EPOCHS, trained
from tests.export.trace_processor import opened
from tests.record.rich import rich_run
from tests.record.synthetic import WALL_START_NS

pytestmark = pytest.mark.slow
_FAULTS = "select name, value from stats where severity in ('error', 'data_loss') and value != 0"
# Traces one call of torch's profiler, and prints the wall clock at its begin.
_TRACED = """
import sys, time, torch
from torch.profiler import profile, record_function
with profile() as traced:
    torch.ones(1)
    with record_function("the moment"):
        seen = time.time_ns()
        time.sleep(0.01)
traced.export_chrome_trace(sys.argv[1])
print(seen)
"""


def test_perfetto_reads_the_slices_their_sums_and_every_flow(tmp_path: Path) -> None:
    trace = tmp_path / "t.pftrace"
    assert main(["trace", str(trained(tmp_path)), "-o", str(trace)]) == 0
    with opened(trace) as ask:
        rows = ask("select name, count(*), sum(dur) from slice group by 1")
        arrows = ask(
            "select a.name, b.name, count(*) from flow join slice a on a.id = slice_out "
            "join slice b on b.id = slice_in group by 1, 2 order by 1"
        )
        assert ask(_FAULTS) == []
    found = {name: (count, total) for name, count, total in rows}
    count = EPOCHS * BATCHES
    assert found["step"][0] == found["waiting for a batch"][0] == found["fetch a batch"][0] == count
    assert found["waiting for a batch"][1] == count * 170_000_000
    assert found["fetch a batch"][1] == count * 100_000_000
    assert arrows == [
        ["fetch a batch", "hand over a batch", count],
        ["hand over a batch", "batch arrives", count],
    ]


@pytest.mark.parametrize("form", ["perfetto", "chrome"])
def test_a_record_with_something_of_everything_is_read_without_an_error(tmp_path: Path, form: str) -> None:
    trace = tmp_path / ("t.pftrace" if form == "perfetto" else "t.json")
    run = rich_run(tmp_path, mark="</script>\u2028'\"")
    assert main(["trace", str(run), "--format", form, "-o", str(trace)]) == 0
    with opened(trace) as ask:
        assert ask(_FAULTS) == []
        (count,) = ask("select count(*) from slice where dur < 0")[0]
        names = [name for (name,) in ask("select name from process where name is not null")]
        assert ask("select count(*) from counter")[0][0] > 0
    assert count == 0 and len(names) >= 2


def test_a_kernel_trace_lies_on_the_same_axis(tmp_path: Path) -> None:
    run = trained(tmp_path)
    kernels = tmp_path / "kernels.json"
    seen = subprocess.run(
        [sys.executable, "-c", _TRACED, kernels], capture_output=True, text=True, check=True, env=os.environ
    )
    wall = int(seen.stdout)
    # The run's clock is made: the kernel trace is moved to where the run was recorded.
    document = json.loads(kernels.read_text())
    document["baseTimeNanoseconds"] += WALL_START_NS + 2_000_000_000 - wall
    (run / "trace-100.json.gz").write_bytes(gzip.compress(json.dumps(document).encode()))
    trace = tmp_path / "t.zip"
    assert main(["trace", str(run), "-o", str(trace)]) == 0
    with opened(trace) as ask:
        assert ask(_FAULTS) == []
        ((begin,),) = ask("select ts from slice where name = 'the moment'")
        ((step,),) = ask("select min(ts) from slice where name = 'step'")
    # The first step began one second after the run did, and the moment is two seconds after it.
    assert begin - step == pytest.approx(1_000_000_000, abs=20_000_000)
