"""Two trainings side by side: which is faster, by how much, how sure that is, and where the difference lies."""
