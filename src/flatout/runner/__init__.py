"""Running the user's command under the probe, and ending it: the first part of ``flatout profile``."""

from flatout.runner.bounds import Bounds
from flatout.runner.session import Outcome, record

__all__ = ["Bounds", "Outcome", "record"]
