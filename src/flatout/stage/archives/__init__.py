"""Archives unpacked while they are read."""
