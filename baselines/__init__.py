"""CPU references: the same plug-in shape as the GPU methods."""
