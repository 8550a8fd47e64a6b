"""Where data come from: stores, web servers, folders."""
