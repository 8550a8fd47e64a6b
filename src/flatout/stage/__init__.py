"""Bring a data set next to the GPU: list, choose, copy, verify, resume."""
