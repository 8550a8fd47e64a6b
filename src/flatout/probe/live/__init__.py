"""Live trials: settings of a running training switched in blocks of steps."""
