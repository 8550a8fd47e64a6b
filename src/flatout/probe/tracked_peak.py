"""The peak that torch's memory tracker saw, by kind of tensor."""


def tracked_peak(tracker):
    """Kind of tensor -> bytes, summed over devices.

    Args:
        tracker: a ``torch.distributed._tools.mem_tracker.MemTracker``.
    """
    peak: dict[str, int] = {}
    for device in tracker.get_tracker_snapshot("peak").values():
        for kind, held in device.items():
            name = str(getattr(kind, "value", kind)).lower()
            if name != "total":
                peak[name] = peak.get(name, 0) + held
    return peak
