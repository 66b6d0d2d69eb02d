"""One or more modules for each paper, which make its tables and figures."""
