"""Every scenario under a plain Celery task and under a batch task: stock Celery is the specification."""
