"""The plan of a live trial, which the runner leaves in the run folder."""

import json
import os

from ..contract import LIVE_PLAN


def read_plan(run):
    """The plan; None: this run has none.

    Args:
        run: the run folder.
    """
    path = os.path.join(run, LIVE_PLAN)
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)
