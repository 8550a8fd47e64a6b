"""Storage: measured read rates, and buckets mounted as folders."""
