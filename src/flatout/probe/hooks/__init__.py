"""Functions of torch and other libraries that are timed, one module a part."""
