"""What the operators of a step compute, looked at in steps after the window."""
