"""libFuzzer targets for every byte that the worker and the host decode; `python -m tests.fuzz` runs them."""
