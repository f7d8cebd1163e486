"""Unit tests: no server, no child process, no clock."""
