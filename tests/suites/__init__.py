"""Suites that run for as long as you want. Each is a module with a `main`, which `scripts/suite NAME` runs."""
