"""Results as one HTML file that opens offline: data, style and scripts are inside, and it makes no request."""
