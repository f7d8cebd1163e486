"""Pure decisions: no Celery, no Redis, no clock, no logging, no threads. Time is passed in."""
