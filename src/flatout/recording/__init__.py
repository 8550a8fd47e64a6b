"""Running the user's command under the probe, and ending it: what ``flatout profile`` does before it diagnoses."""

from flatout.recording.bounds import Bounds
from flatout.recording.session import Outcome, record

__all__ = ["Bounds", "Outcome", "record"]
