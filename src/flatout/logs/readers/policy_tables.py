"""The tables of stable-baselines3: timesteps so far and the seconds that they took, on lines of their own."""

from __future__ import annotations

import re

from flatout.logs.observations import Kind, Observation

_ROW = re.compile(r"^\|\s+(fps|time_elapsed|total_timesteps|iterations)\s*\|\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*\|$")
LEAST_S = 20.0  # its clock shows whole seconds, and its rate whole timesteps/s


class PolicyTables:
    """Reads line by line; a table has told all with its total."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}

    def parse(self, text: str) -> list[Observation]:
        """The mean time of a timestep from the start on."""
        found = _ROW.match(text.strip())
        if found is None:
            return []
        self._seen[found[1]] = float(found[2])
        if found[1] != "total_timesteps":
            return []
        total, elapsed_s = self._seen["total_timesteps"], self._seen.get("time_elapsed", 0.0)
        step_s = elapsed_s / total if elapsed_s >= LEAST_S and total else 0.0
        if not step_s and (rate := self._seen.get("fps")):
            step_s = 1 / rate
        self._seen = {}
        return [Observation(Kind.STEP, {"step": total, "step_s": step_s, "mean": 1.0})] if step_s else []
