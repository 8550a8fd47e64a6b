"""What one sets before a training."""

SOURCE = 256
SIZE = 64
CLASSES = 5
BATCH = 8
