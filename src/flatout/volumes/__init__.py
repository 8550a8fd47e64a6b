"""3-D volumes: staged once into sharded zarr, then read patch by patch."""

from flatout.volumes.opening import Volume, open_volume
from flatout.volumes.patches import PatchDataset
from flatout.volumes.staged import StagedCase, StagedSet, read_staged

__all__ = ["PatchDataset", "StagedCase", "StagedSet", "Volume", "open_volume", "read_staged"]
