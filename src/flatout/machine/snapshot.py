"""A snapshot of the machine at the start of a run: machine.json."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from flatout.machine import cgroups
from flatout.machine.cores import Cores, read_cores
from flatout.machine.files import read_text
from flatout.machine.gpus import Gpu, Nvml, read_gpus
from flatout.machine.memory import Memory, Shm, read_memory, read_shm
from flatout.machine.mounts import Mount, read_mounts
from flatout.units import size

T = TypeVar("T")


@dataclass(frozen=True)
class Machine:
    """The resources of a machine that a training can use.

    A field that could not be read is None; ``not_measured`` maps its name ("cores.quota") to the reason.
    """

    cores: Cores
    memory: Memory
    shm: Shm
    mounts: tuple[Mount, ...] | None
    gpus: tuple[Gpu, ...] | None  # empty: the machine has none
    kernel: str | None
    cgroup: str | None  # "v1", "v2", "v1+v2"
    not_measured: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Machine:
        """Reload. Fields of a newer version are ignored; fields that an older version did not write are None.

        Raises:
            ValueError: ``data`` is not a mapping of the right shape.
        """
        try:
            return cls(
                cores=_reload(Cores, {"derived": {}} | data["cores"]),
                memory=_reload(Memory, data["memory"]),
                shm=_reload(Shm, data["shm"]),
                mounts=_reload_all(Mount, data.get("mounts")),
                gpus=_reload_all(Gpu, data.get("gpus")),
                kernel=data.get("kernel"),
                cgroup=data.get("cgroup"),
                not_measured=dict(data.get("not_measured") or {}),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"machine.json: not a description of a machine ({error!r})") from error

    def one_line(self) -> str:
        """Such as "2 cores usable of 2, 23.5 GiB RAM, no GPU"."""
        return ", ".join([_cores_text(self.cores), _memory_text(self.memory), _gpus_text(self.gpus)])


def _reload(cls: type[T], data: Mapping[str, Any]) -> T:
    values = {item.name: data.get(item.name) for item in fields(cls)}  # type: ignore[arg-type]
    return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _reload_all(cls: type[T], items: list[Mapping[str, Any]] | None) -> tuple[T, ...] | None:
    return None if items is None else tuple(_reload(cls, item) for item in items)


def _cores_text(cores: Cores) -> str:
    if cores.usable is None:
        return "cores not measured"
    text = f"{cores.usable:.3g} core{'' if cores.usable == 1 else 's'} usable"
    return text if cores.online is None else f"{text} of {cores.online}"


def _memory_text(memory: Memory) -> str:
    usable, total = memory.usable_bytes, memory.total_bytes
    if usable is None:
        return "RAM not measured"
    if total is None or usable < total:
        return f"{size(usable)} RAM usable" + (f" of {size(total)}" if total is not None else "")
    return f"{size(usable)} RAM"


def _gpus_text(gpus: tuple[Gpu, ...] | None) -> str:
    if gpus is None:
        return "GPU not measured"
    if not gpus:
        return "no GPU"
    models = Counter(
        f"{gpu.name or 'GPU'}{'' if gpu.memory_bytes is None else ' ' + size(gpu.memory_bytes)}" for gpu in gpus
    )
    return ", ".join(model if count == 1 else f"{count} x {model}" for model, count in models.items())


def take_snapshot(root: Path = Path("/"), *, start_nvml: Callable[[], Nvml] = Nvml) -> Machine:
    """Look at the machine. Takes some milliseconds, more where a GPU has to wake up; raises nothing.

    Args:
        root: The folder below which /proc, /sys and /dev are read.
        start_nvml: Makes the access to the GPUs.
    """
    cores, no_cores = read_cores(root)
    memory, no_memory = read_memory(root)
    shm, no_shm = read_shm(root)
    gpus, no_gpus = read_gpus(root, start_nvml)
    not_measured = no_cores | no_memory | no_shm | no_gpus
    mounts = read_mounts(root)
    if mounts is None:
        not_measured["mounts"] = "/proc/self/mountinfo could not be read"
    kernel = (read_text(root / "proc/sys/kernel/osrelease") or "").strip() or None
    if kernel is None:
        not_measured["kernel"] = "/proc/sys/kernel/osrelease could not be read"
    version = cgroups.version(root)
    if version is None:
        not_measured["cgroup"] = "no cgroup file system is mounted here" if mounts else not_measured.get("mounts", "")
    return Machine(
        cores=cores,
        memory=memory,
        shm=shm,
        mounts=None if mounts is None else tuple(mounts),
        gpus=gpus,
        kernel=kernel,
        cgroup=version,
        not_measured={name: because for name, because in not_measured.items() if because},
    )
