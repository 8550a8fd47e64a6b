"""Files of a slow folder, kept in a fast one as they are read."""
