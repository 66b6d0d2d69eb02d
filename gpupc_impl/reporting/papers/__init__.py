"""The papers, a module each: their tables and figures, on what the modules above share."""
