"""The folder that is filled: files, state, lock, space."""
