"""GPUs by name, with the figures of their maker that a step is scaled by."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.resources import files

from flatout.errors import UsageError

PRECISIONS = ("fp32", "tf32", "fp16", "fp8")
GENERATIONS = ("Pascal", "Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell")
# Of the peak, where it was not measured: the median of the parts where it was.
USUAL_SUSTAINED = 0.74


@dataclass(frozen=True)
class GpuPart:
    """One model of GPU: what its maker says of it. None of it was measured by flatout.

    Attributes:
        name: in the catalogue, such as H100-SXM.
        nvml: names by which the driver knows it.
        generation: of its architecture.
        memory_bytes: in all; the driver and CUDA's context take some of it.
        bandwidth: bytes a second of its memory.
        peaks: floating-point operations a second of dense products, by precision; those that it lacks are absent.
        sustained: share of the peak that large products reach; None: no public measurement of it is known.
        sustained_by: those who measured it; shares of one source are comparable.
        source: where the maker says so.
        date: on which the figures were compared with a second place.
    """

    name: str
    nvml: tuple[str, ...]
    generation: str
    memory_bytes: int
    bandwidth: float
    peaks: Mapping[str, float]
    sustained: float | None
    sustained_by: str | None
    source: str
    date: date

    @property
    def share_reached(self) -> float:
        """Of its peak, in large products: measured, or else the usual one."""
        return USUAL_SUSTAINED if self.sustained is None else self.sustained

    def reached(self, precision: str) -> float:
        """Operations a second that large products reach."""
        return self.peaks[precision] * self.share_reached


@cache
def gpu_parts() -> tuple[GpuPart, ...]:
    """The parts of the catalogue, in its order."""
    listed = tomllib.loads(files(__package__).joinpath("gpus.toml").read_text("utf-8"))
    return tuple(
        GpuPart(
            name=name,
            nvml=tuple(part["nvml"]),
            generation=part["generation"],
            memory_bytes=part["memory_gb"] << 30,  # makers count gigabytes of 2^30 bytes
            bandwidth=part["bandwidth_gbps"] * 1e9,
            peaks={one: part[one] * 1e12 for one in PRECISIONS if one in part},
            sustained=part.get("sustained"),
            sustained_by=part.get("sustained_by"),
            source=part["source"],
            date=part["date"],
        )
        for name, part in listed.items()
    )


def find_part(name: str) -> GpuPart | None:
    """The part that a user or the driver names; case, spaces and hyphens do not matter. None: it is not listed."""
    known = {_key(spelled): part for part in gpu_parts() for spelled in (part.name, *part.nvml)}
    return known.get(_key(name))


def chosen_part(name: str, option: str = "--gpu") -> GpuPart:
    """The part that an option names.

    Raises:
        UsageError: the catalogue has none of that name; the nearest names are given.
    """
    found = find_part(name)
    if found is not None:
        return found
    if _key(name) in _UNCONFIRMED:
        raise UsageError(
            f"{option} {name}: it is left out, because its figures could not be confirmed: give another part"
        )
    names = [part.name for part in gpu_parts()]
    keys = {_key(one): one for one in names}
    near = [one for key, one in keys.items() if _key(name) and key.startswith(_key(name))]
    near = near or [keys[key] for key in difflib.get_close_matches(_key(name), keys, 3, 0.5)]
    meant = f"did you mean {', '.join(near)}?" if near else f"known are {', '.join(names)}"
    raise UsageError(f"{option} {name[:60]}: no figures of this GPU are known: {meant}")


_UNCONFIRMED = ("a10g",)  # parts whose figures no second place states


def _key(name: str) -> str:
    return re.sub(r"[\s_-]|nvidia|tesla|geforce|quadro", "", name.lower())
