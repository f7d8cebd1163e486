"""The pool process (or thread): runs one batch and traces each of its items with Celery's own tracer."""
