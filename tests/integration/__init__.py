"""Integration tests: a real worker on real servers; a checker after each sees that nothing is left."""
