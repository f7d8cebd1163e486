"""The rule for a server that this machine does not have: skip, or fail where all are required."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


class ServerMissingError(Exception):
    """There is no such server on this machine; the message says what was looked for."""


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test; fail it with BATCHING_REQUIRE_BROKERS=1, as in CI."""
    if os.environ.get("BATCHING_REQUIRE_BROKERS") == "1":
        pytest.fail(f"{reason} (required by BATCHING_REQUIRE_BROKERS=1)")
    pytest.skip(reason)
