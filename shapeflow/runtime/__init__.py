"""What watches a model while it runs: errors explained, annotations enforced."""
