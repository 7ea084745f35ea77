"""Suites that run for as long as you let them. Each is a module with a `main`, run by `scripts/suite NAME`."""
