"""One reader a format; each yields observations, and neither executes nor unpickles anything."""
