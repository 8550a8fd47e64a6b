"""Functions of the user's that compute with gradients, in a step after the window.

They are the model's, whether a module is called or a method such as ``model.loss(batch)``.
"""

from typing import Any

from ..recorder import REC
from ..sites import describe_frame, user_frame

_MOST = 32


class ModelFunctions:
    """Notes them among the operators of a step."""

    def __init__(self):
        self._saved = False
        self.begin()

    def begin(self):
        """A step begins."""
        self._codes: Any = {}

    def look(self, made):
        """Look at an operator that has run, and is no part of a backward pass.

        Args:
            made: the node that its own backward pass will have, or None.
        """
        if made is None or self._saved or len(self._codes) == _MOST:
            return
        frame = user_frame()
        if frame is not None:
            self._codes[frame.f_code] = None

    def save(self):
        """Write into the record what the first whole step showed."""
        if self._codes and not self._saved:
            self._saved = True
            frames = [describe_frame(code, code.co_firstlineno) for code in self._codes]
            REC.save_process(model_functions=[[file, function] for file, _, function, _, _ in frames])
