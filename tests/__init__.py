"""The tests by level: `unit` (no server), `integration` (real servers), `acceptance` (as a user would)."""
