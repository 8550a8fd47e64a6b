"""From a record to a diagnosis: ledger, causes, remedies. Pure functions of the run folder, without torch."""

__all__ = ["diagnose"]


def __getattr__(name: str) -> object:
    # Late, because predictions and remedies read this package's plain objects while they are imported themselves.
    if name == "diagnose":
        from flatout.diagnosis import diagnose

        return diagnose
    raise AttributeError(f"module 'flatout.diagnose' has no attribute {name!r}")
