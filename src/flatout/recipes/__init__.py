"""The reference pipelines: a training described by one YAML file, and the code that runs it."""
