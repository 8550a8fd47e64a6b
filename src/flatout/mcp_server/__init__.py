"""A server for the Model Context Protocol: flatout's commands as tools of coding agents."""
