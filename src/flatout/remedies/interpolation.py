"""Interpolation of arrays: SciPy's functions use cubic splines unless they are told otherwise."""

from __future__ import annotations

import re

from flatout.measure.loader_stats import LoaderStats
from flatout.predict.context import Context
from flatout.predict.fetch_changes import TRANSFORM_GROUPS, group_share, without_groups
from flatout.remedies.proposal import DATA, Proposal, remedy
from flatout.results import Cause

_CALLED = re.compile(r"\b(rotate|shift|zoom|affine_transform|map_coordinates|geometric_transform)\(")
_CHEAP = re.compile(r"\border\s*=\s*[01]\b|\bspline_filter")
_LEAST_PART = 0.1  # of what is prepared
# Part of such a call that linear interpolation saves, measured with SciPy on arrays of one to 48 planes.
_SAVED, _LEAST_SAVED, _MOST_SAVED = 0.7, 0.5, 0.85


@remedy(("cpu_transform",), DATA, risk="medium")
def linear_interpolation(context: Context, cause: Cause) -> Proposal | None:
    """Interpolate linearly where SciPy fits cubic splines."""
    loader = context.run.loading
    if loader is None or loader.functions.packages.get("transform") != "scipy":
        return None
    names, part = _spline_calls(loader)
    if part < _LEAST_PART:
        return None
    return Proposal(
        title=f"interpolate linearly, not by cubic splines, in {' and '.join(names)}",
        change=without_groups(loader, TRANSFORM_GROUPS, _SAVED * part),
        least=without_groups(loader, TRANSFORM_GROUPS, _LEAST_SAVED * part),
        most=without_groups(loader, TRANSFORM_GROUPS, _MOST_SAVED * part),
        how=f"ndimage.{names[0]}(..., order=1); several of them as one affine_transform. Masks take order=0",
        basis="measured time of the lines that call them; linear interpolation was measured to save seven tenths of a "
        "call, 50% to 85%",
        memory_bytes=0,
    )


def _spline_calls(loader: LoaderStats) -> tuple[list[str], float]:
    """The functions that hot lines call with their default order, and these lines' part of what is prepared, 0..1."""
    lines = [line for group in TRANSFORM_GROUPS for line in loader.functions.lines_of_group.get(group, ())]
    found = {
        line: call[1] for line in lines if (call := _CALLED.search(line.source)) and not _CHEAP.search(line.source)
    }
    cpu_s = float(loader.fetch.cpu_s.sum()) if loader.fetch.cpu_s is not None else 0.0
    whole = max(cpu_s * group_share(loader.functions.cpu_groups, TRANSFORM_GROUPS), sum(line.seconds for line in lines))
    names = sorted(set(found.values()), key=lambda name: -sum(line.seconds for line in found if found[line] == name))
    return names, sum(line.seconds for line in found) / whole if whole > 0 else 0.0
