"""A root of its own: what is not granted is not there, not even for stat.

Mechanism    mount, pid, IPC and UTS namespaces around the stem; an empty tmpfs with read-only binds of the system's
             libraries, the module's folder and what the policy grants; pivot_root. namespaces(7), mount_setattr(2).
             As host root the folders are idmapped: their owner appears as the sandbox's user, so that files below a
             folder of mode 0700 can be read, and nothing is chmod'ed or chown'ed. As an ordinary user a user namespace
             is put around, with the user's own ids. A granted /tmp is a sized tmpfs of each worker's own.
Guards       FILES_SCOPED, FILES_HIDDEN.
Needs        root with CAP_SYS_ADMIN, or unprivileged user namespaces; Linux 5.12 for idmapped mounts.
Closes       `bounded-tmp`.
Can NOT      show a tree that its file system cannot idmap unless everybody may read it; bound a workspace's growth.
"""
