"""The data path: encoded images from a source to uint8 batches, decoded where it is fastest, finished on the device."""
