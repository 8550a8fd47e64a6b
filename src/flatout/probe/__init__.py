"""The probe: what runs inside the user's processes and records them.

Standard library only, Python 3.9 or later, and nothing else of flatout: this folder is loaded by
path into the user's interpreter, under the name ``_flatout_probe``. An exception in here never
reaches the training: every hook runs the user's call first and swallows its own faults.
"""
