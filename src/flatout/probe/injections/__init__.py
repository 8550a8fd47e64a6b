"""Settings injected into an unmodified training, one module per part: trials try them, ``flatout apply`` keeps them.

The user's files do not change, and the setting ends with the process. A setting that cannot be applied is noted with
its reason, and never stops the training.
"""

import importlib
import json
import mmap
import os
from typing import Any

from ..contract import SETTINGS_VARIABLE
from ..settings import SETTINGS, combined


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
        self.at_end: Any = []  # called when the process ends; each gives lines to say
        self._actions = {}  # name -> what has to be done besides when it is switched
        # A byte for each setting, which forked workers write to as well: what they take shows in no other process.
        self._taken: Any = mmap.mmap(-1, len(SETTINGS)) if self.wanted else b""

    def get(self, name):
        """The requested value; None: leave the training's own."""
        return self.wanted.get(name)

    def on_switch(self, name, action):
        """Have ``action(value)`` called when a setting is switched later; None: it is off."""
        self._actions[name] = action

    def switch(self, name, value):
        """Set a setting whose patches are installed to another value, or off; returns what undoes it."""
        before = self.wanted.get(name)
        self._set(name, value)
        return lambda: self._set(name, before)

    def _set(self, name, value):
        self.wanted[name] = value
        if name in self._actions:
            self._actions[name](value)

    def done(self, *names):
        """Note that settings took effect."""
        new = [name for name in names if name not in self.applied]
        if new:
            for place, name in enumerate(SETTINGS):
                if name in new and len(self._taken):
                    self._taken[place] = 1
            self.applied.update({name: self.wanted.get(name) for name in new})
            self.changed()

    def taken(self):
        """Settings that took effect in this process or in one that it forked: name -> value."""
        marked = [name for place, name in enumerate(SETTINGS) if len(self._taken) and self._taken[place]]
        # What was refused later is only in ``applied`` if it has stayed in effect.
        return {**{name: self.wanted.get(name) for name in marked if name not in self.refused}, **self.applied}

    def refuse(self, name, why):
        """Note that a setting cannot take effect here."""
        if self.refused.get(name) != why:
            self.refused[name] = why
            self.changed()


INJECTED = Injected(os.environ.get(SETTINGS_VARIABLE))


def install_at_start(watch):
    """Install the patches that need no torch, for any program; see ``install``."""
    _install([name for name in _wanted() if SETTINGS[name].at_start], watch)


def install(watch, plan=None):
    """Install the patches of the requested settings, once torch is imported.

    Args:
        watch: ``watch(module, action)`` runs ``action`` after a module was imported.
        plan: of a live trial: the patches of its candidates too, which do nothing until they are switched.
    """
    held: Any = {}
    for settings in plan["candidates"] if plan else ():
        of_flags = {name: value for name, value in settings.items() if _by_flag(name) and name not in INJECTED.wanted}
        held = combined(held, of_flags)
    INJECTED.wanted.update(held)
    _install([name for name in _wanted() if not SETTINGS[name].at_start], watch)
    for name in held:
        INJECTED.switch(name, None)


def _by_flag(name):
    """True if patches look at each call whether a setting is on."""
    return SETTINGS[name].injector not in ("loader", "backends")


def switch_setting(name, value):
    """Switch one of the settings of a live trial, but for those of loaders; returns what undoes it."""
    if _by_flag(name):
        return INJECTED.switch(name, value)
    if SETTINGS[name].injector == "backends":
        return importlib.import_module("%s.backends" % __name__).switch(name, value)
    return lambda: None


def took_effect(name):
    """False for a setting that nothing has taken yet."""
    return not _by_flag(name) or name in INJECTED.applied


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
