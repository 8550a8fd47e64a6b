"""Where encoded images come from: class folders, a table with labels, tar shards, packed sets, object stores."""
