"""What logs of runs say that flatout did not record: read, checked, and shown with their lines."""
