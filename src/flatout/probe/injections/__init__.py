"""Settings injected into an unmodified training, one module per part: trials try them, ``flatout apply`` keeps them.

The user's files do not change, and the setting ends with the process. A setting that cannot be applied is noted with
its reason, and never stops the training.
"""

import importlib
import json
import os

from ..contract import SETTINGS_VARIABLE
from ..settings import SETTINGS


class Injected:
    """The settings of this process.

    Attributes:
        wanted: name -> value.
        applied: names of those that took effect.
        refused: name -> the reason why it did not.
    """

    def __init__(self, text):
        try:
            wanted = json.loads(text) if text else {}
        except ValueError:
            wanted = {}
        self.wanted = wanted if isinstance(wanted, dict) else {}
        self.applied = {}
        self.refused = {}
        self.changed = lambda: None  # called when there is something new to report

    def get(self, name):
        """The requested value; None: leave the training's own."""
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


INJECTED = Injected(os.environ.get(SETTINGS_VARIABLE))


def install_at_start(watch):
    """Install the patches that need no torch, for any program; see ``install``."""
    _install([name for name in _wanted() if SETTINGS[name].at_start], watch)


def install(watch):
    """Install the patches of the requested settings, once torch is imported.

    Args:
        watch: ``watch(module, action)`` runs ``action`` after a module was imported.
    """
    _install([name for name in _wanted() if not SETTINGS[name].at_start], watch)


def _wanted():
    return [name for name in SETTINGS if SETTINGS[name].injector and INJECTED.get(name) is not None]


def _install(names, watch):
    for module in sorted({SETTINGS[name].injector or "" for name in names}):
        try:
            importlib.import_module("%s.%s" % (__name__, module)).install(INJECTED, watch)
        except Exception as error:
            for name in names:
                if SETTINGS[name].injector == module:
                    INJECTED.refuse(name, "%s: %s" % (type(error).__name__, error))
