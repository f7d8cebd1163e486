"""The worker's main process: takes Celery's requests in, forms batches, sends them to the pool, settles."""
