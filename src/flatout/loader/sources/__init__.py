"""Sources of encoded images: class folders, a table with labels, tar shards, packed sets, object stores."""
