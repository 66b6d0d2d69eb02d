"""CPU references: one file each, the same plug-in shape as the GPU methods."""
