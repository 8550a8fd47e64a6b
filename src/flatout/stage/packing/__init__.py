"""One file for many images."""
