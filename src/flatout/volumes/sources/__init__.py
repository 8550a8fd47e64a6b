"""Volumes in the formats that people have them in; each is read in slabs."""
