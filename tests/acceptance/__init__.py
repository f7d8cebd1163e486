"""Acceptance tests: the celery command line as a user starts it."""
