"""What is tried after the measured window: steps with one thing changed, with kept batches, or no steps at all."""
