"""What computes the same as operators or functions of a training, and faster."""
