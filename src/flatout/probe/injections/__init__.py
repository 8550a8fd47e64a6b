"""Settings that are put into an unchanged training, one module a part: what trials try, and ``flatout apply`` keeps.

Nothing in the user's files changes; with the process, the setting is gone. What could not be set is noted with its
reason, and never stops the training.
"""

import json
import os

VARIABLE = "FLATOUT_SETTINGS"


class Injected:
    """The settings of this process.

    Attributes:
        wanted: name -> value.
        applied: names of those that took effect.
        refused: name -> why it did not.
    """

    def __init__(self, text):
        try:
            wanted = json.loads(text) if text else {}
        except ValueError:
            wanted = {}
        self.wanted = wanted if isinstance(wanted, dict) else {}
        self.applied = {}
        self.refused = {}
        self.changed = lambda: None  # called when there is something new to tell

    def get(self, name):
        """The value that is wanted; None: leave it as it is."""
        return self.wanted.get(name)

    def done(self, *names):
        """Note that settings took effect."""
        new = [name for name in names if name not in self.applied]
        if new:
            self.applied.update({name: self.wanted.get(name) for name in new})
            self.changed()

    def refuse(self, name, why):
        """Note that a setting cannot take effect here."""
        if self.refused.get(name) != why:
            self.refused[name] = why
            self.changed()


INJECTED = Injected(os.environ.get(VARIABLE))


def install_at_start(watch):
    """Patch what the wanted settings need in any program, whether it imports torch or not; see ``install``."""
    if INJECTED.get("read_through") is not None:
        from . import cached

        _install((cached,), watch)


def install(watch):
    """Patch what the wanted settings need, once torch is imported.

    Args:
        watch: ``watch(module, action)`` runs ``action`` after a module was imported.
    """
    from . import backends, copies, files, loader, model, optimizer, scalars, staged, writing

    _install((backends, copies, files, loader, model, optimizer, scalars, staged, writing), watch)


def _install(parts, watch):
    for part in parts:
        names = [name for name in part.SETTINGS if INJECTED.get(name) is not None]
        if not names:
            continue
        try:
            part.install(INJECTED, watch)
        except Exception as error:
            for name in names:
                INJECTED.refuse(name, "%s: %s" % (type(error).__name__, error))
