"""From a record to a diagnosis: ledger, causes, remedies. Pure functions of the run folder, without torch."""

from flatout.diagnose.diagnosis import diagnose

__all__ = ["diagnose"]
