"""What all unit tests need."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# What is tested is whether something holds, not how fast: on a busy machine any example may take a second.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")
