"""Sources of data: object stores, web servers, folders."""
