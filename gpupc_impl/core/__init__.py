"""Problems, results, the registry of methods and the level loop: what every family and reference shares."""
