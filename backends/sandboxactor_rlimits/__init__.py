"""Limits of one process, setrlimit(2): small ones always, memory and tasks where nothing counts them.

Mechanism    no core file, 1024 descriptors, no locked memory, no queues, no real-time priority. As a fallback for a
             native module without a control group: RLIMIT_DATA and RLIMIT_AS together, small stacks; and RLIMIT_NPROC
             inside a user namespace of the worker's own, where it counts this worker's tasks alone.
Guards       MEMORY_MAX, PROCESSES_MAX, both as fallbacks.
Needs        user namespaces for PROCESSES_MAX.
Leaves       in MEMORY_MAX: shared, grow-down, memfd, SysV and pipe memory, which seccomp closes.
Can NOT      say that memory ran out: a breach is ENOMEM to the module, and never the outcome `memory`. A module that
             reserves address space ahead (Go, sanitizers) needs a control group. RLIMIT_NPROC does not bind uid 0.
"""
