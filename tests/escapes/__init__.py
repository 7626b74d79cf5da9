"""Attacks, each with a positive control that succeeds unconfined."""
