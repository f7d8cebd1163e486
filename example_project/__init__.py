"""A sentence-embedding service: Flask takes single texts, a Celery worker runs the model on batches of them."""
