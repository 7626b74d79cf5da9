"""The C sources of the worker and of the host's run call, and the hook that builds them. No Python runs in a worker."""
