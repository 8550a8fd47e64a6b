"""glibc's allocator keeps what is freed: otherwise large tensors go back to the kernel, and come anew page by page."""

import ctypes
import os

# From malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def install(injected, watch):
    """Set it for this process, and for those that it forks."""
    if not injected.get("memory_kept"):
        return
    others = [name for name in ("jemalloc", "tcmalloc", "mimalloc") if name in os.environ.get("LD_PRELOAD", "")]
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if others:
        injected.refuse("memory_kept", "LD_PRELOAD loads another allocator, %s" % others[0])
    elif mallopt is None:
        injected.refuse("memory_kept", "the C library is not glibc: it has no mallopt")
    elif mallopt(_MMAP_MAX, 0) and mallopt(_TRIM_THRESHOLD, -1):
        injected.done("memory_kept")
    else:
        injected.refuse("memory_kept", "mallopt failed")
