"""Files by path: each worker in a Landlock domain of its own.

Mechanism    landlock(7). The ruleset is built once by the stem, in the stem's own view of files, and enforced by each
             worker before its filter; its descriptor is closed before the module loads. abi.py has one row a version.
Guards       FILES_SCOPED.
Needs        Linux 5.13 with landlock among the active security modules.
Leaves       chmod, chown, utimes, extended attributes, mknod by other means and path unix sockets, on every version;
             truncation before ABI 3, device ioctls before ABI 5. A bounded /tmp is not its to give.
Closes       `signals` from ABI 6 on (Linux 6.12), and abstract unix sockets.
Can NOT      hide that a file exists (stat, O_PATH), stop UDP ever, or TCP before ABI 4, or act on an open file.
"""
