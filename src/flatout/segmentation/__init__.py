"""Segmentation of 3-D volumes: networks, loss, augmentation on the device, and prediction by a sliding window."""
