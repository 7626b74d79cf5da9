"""Runs `.so` Actions with the two-symbol ABI, in one-shot workers.

Mechanism    the stem forks a worker ahead of each run; when the host says go it loads the module with dlopen, calls
             `allascode_action_execute` once, copies the answer into sealed memory, calls `allascode_action_free` once
             and is gone by _exit: destructors of the module do not run.
Guards       WALL_TIME (the host's monotonic clock and SIGKILL), OUTPUT_MAX (the size of the sealed memory).
Needs        a module for the worker's own C library: one built for another is `bad_module`.
Can NOT      vary the address-space layout between the workers of one stem: they are forked, not executed.
"""
