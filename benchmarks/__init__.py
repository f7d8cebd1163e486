"""Benchmarks: stock Celery, celery-batches and this project side by side, on the same simulated model."""
