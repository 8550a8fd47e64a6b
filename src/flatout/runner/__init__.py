"""Running the user's command under the probe, and ending it: what ``flatout profile`` does before it diagnoses."""

from flatout.runner.bounds import Bounds
from flatout.runner.session import Outcome, record

__all__ = ["Bounds", "Outcome", "record"]
