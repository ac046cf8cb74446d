"""The nouns, the lowering, the engine, the metrics and the command line."""
