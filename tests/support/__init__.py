"""Helpers with names, not fixtures with magic: servers, sites, workers, the journal and waiting."""
