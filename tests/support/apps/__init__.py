"""One module per Celery app under test: `make_app(site)` for the client, `app` for `celery -A`."""
