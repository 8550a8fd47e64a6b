"""Rules on a measured run: causes, findings, their ranking and the verdict."""
