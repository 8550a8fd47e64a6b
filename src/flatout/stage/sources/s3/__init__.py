"""S3 and compatible stores: addresses, keys, signatures, listings."""
