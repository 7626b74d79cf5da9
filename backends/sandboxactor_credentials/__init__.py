"""Who the worker is: no new privileges, no capability, never the host's uid 0.

Mechanism    PR_SET_NO_NEW_PRIVS; setgroups, setresgid, setresuid; capset; the bounding and ambient sets emptied and the
             securebits locked where CAP_SETPCAP allows it. credentials(7), capabilities(7).
Guards       NO_NEW_PRIVS, IDENTITY.
Needs        as host root CAP_SETUID, CAP_SETGID and an id map that has the sandbox's uid; else nothing.
Leaves       `signals`: workers of one host share a uid, so Landlock (from ABI 6) or a second filter must close
             them to each other.
Can NOT      change an ordinary user's uid: there the worker has the host's own, without privileges, and what it may do
             to the host's other processes is closed by seccomp, Landlock and the pid namespace, not by the uid.
"""
