"""The reference pipelines: a training described by one YAML file, and everything that runs by it."""
