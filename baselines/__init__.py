"""CPU references: each file defines one method, which is registered like the GPU methods."""
