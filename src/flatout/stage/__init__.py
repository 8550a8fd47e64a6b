"""Copy a data set to storage near the GPU: list, select, copy, verify, resume."""
