"""Towards Redis, in the worker's main process: messages come in whole, and go back when their worker dies."""
