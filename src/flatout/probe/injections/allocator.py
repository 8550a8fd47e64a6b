"""Large tensors come anew from the kernel, page by page, in every step: keep what is freed, or take larger pages."""

import ctypes
import os

# From malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
_TORCHS_VARIABLE = "THP_MEM_ALLOC_ENABLE"  # read once, when torch allocates the first tensor on the CPU


def install(injected, watch):
    """Set it for this process, and for those that it forks or starts."""
    if injected.get("memory_kept"):
        _keep(injected)
    if injected.get("huge_pages"):
        _take_huge_pages(injected)


def _keep(injected):
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


def _take_huge_pages(injected):
    try:
        with open(_HUGE_PAGES) as file:
            chosen = file.read().partition("[")[2].partition("]")[0]
    except OSError:
        chosen = ""
    if chosen == "madvise":
        os.environ[_TORCHS_VARIABLE] = "1"
        injected.done("huge_pages")
    elif chosen == "always":
        injected.refuse("huge_pages", "the kernel gives them to all memory already: %s says always" % _HUGE_PAGES)
    else:
        injected.refuse("huge_pages", "the kernel gives none: %s says %s" % (_HUGE_PAGES, chosen or "nothing"))
