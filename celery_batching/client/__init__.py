"""Runs in the process that calls: lean publishing and replies where broker and backend are Redis."""
