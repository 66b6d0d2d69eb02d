"""What every family and reference shares: problems, results, the registry of methods and the level loop."""
