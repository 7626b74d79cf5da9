"""Memory, CPU and tasks of a whole run, counted by the kernel.

Mechanism    control groups, cgroups(7). On v1 a folder in the memory, cpu and pids hierarchies, joined by the worker
             writing `0` to `tasks`; on v2 one folder, into which the worker is cloned (CLONE_INTO_CGROUP, Linux 5.7).
             Groups are made below the host's own group and removed with the Sandbox, or by the zygote if the host dies.
Guards       MEMORY_MAX (no swap), CPU_MAX (per 100 ms), PROCESSES_MAX (threads count).
Needs        v1: root, or folders of one's own in all three hierarchies, Linux 5.16 for a stem that gave up root.
             v2: a group that hands memory, cpu and pids to its children, and in which this user may make one.
Evidence     v1: memory.oom_control oom_kill with memory.max_usage_in_bytes at the limit (memory.failcnt stays 0 on
             6.18), pids.events. v2: memory.events oom and oom_kill, pids.events. A kill without our own limit having
             been met comes from above, and is a WorkerFault.
Can NOT      bound disk space, network or I/O bandwidth; measure the peak of a reused group on v2 before Linux 6.12
             (`memory_peak_bytes` is then the process's own resident peak).
"""
