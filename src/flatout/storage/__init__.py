"""How fast a place is, and buckets mounted as folders."""
