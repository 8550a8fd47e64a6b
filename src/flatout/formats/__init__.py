"""File formats that the loader reads and staging writes."""
