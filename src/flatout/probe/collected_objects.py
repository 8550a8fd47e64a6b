"""All objects that Python's garbage collector knows, those included that were set aside by ``gc.freeze``."""

import gc


def collected_objects():
    """A list of them. What was set aside stays so, and with it what is there now."""
    if not gc.get_freeze_count():
        return gc.get_objects()
    enabled = gc.isenabled()
    gc.disable()  # a collection in between would look at all that was set aside
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
