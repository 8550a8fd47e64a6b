"""Data about the user's objects, keyed by identity, since their classes may define equality in any way."""

import weakref


class ByIdentity:
    """A mapping that forgets an object when it is gone, and asks it neither for a hash nor for equality."""

    def __init__(self):
        self._held = {}  # id -> (weak reference, value)

    def get(self, thing, default=None):
        """The value kept for ``thing``."""
        reference, value = self._held.get(id(thing), (None, None))
        return value if reference is not None and reference() is thing else default

    def __getitem__(self, thing):
        """The value kept for ``thing``.

        Raises:
            KeyError: no value is kept.
        """
        reference, value = self._held[id(thing)]
        if reference() is not thing:
            raise KeyError("it is gone")
        return value

    def __setitem__(self, thing, value):
        """Keep ``value`` for as long as ``thing`` lives."""
        held, key = self._held, id(thing)

        def forget(reference):
            if held.get(key, (None,))[0] is reference:
                del held[key]

        held[key] = (weakref.ref(thing, forget), value)

    def setdefault(self, thing, value):
        """The value kept for ``thing``; if there is none, keep ``value`` and return it."""
        if self.get(thing) is None:
            self[thing] = value
        return self[thing]

    def __iter__(self):
        """The objects that live."""
        return iter(
            [thing for thing in (reference() for reference, _ in list(self._held.values())) if thing is not None]
        )
