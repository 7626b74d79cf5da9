/* sandboxactor-worker serve FD HOST_PID: started by the library only, with an empty environment. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker.h"

/* Whatever the host had as descriptors 0 to 2 (or had not), workers read EOF and write nowhere until a run says so. */
static int null_streams(void)
{
    int null = open("/dev/null", O_RDWR);
    if (null < 0) return -1;
    for (int fd = 0; fd < 3; fd++)
        if (fd != null && dup2(null, fd) < 0) return -1;
    if (null > 2) close(null);
    return 0;
}

/* A host may run as real-time, favoured or exempt from the OOM killer: what it starts for others may not. A real-time
 * task would even escape a CPU quota. */
static void plain_scheduling(void)
{
    struct sched_param none = {0};
    sched_setscheduler(0, SCHED_OTHER, &none);
    syscall(SYS_ioprio_set, 1 /* IOPRIO_WHO_PROCESS */, 0, 0);
    if (getpriority(PRIO_PROCESS, 0) < 0) setpriority(PRIO_PROCESS, 0, 0);
    write_file(AT_FDCWD, "/proc/self/oom_score_adj", "500"); /* before the host, and never exempt */
}

int main(int argc, char **argv)
{
    if (argc != 4 || strcmp(argv[1], "serve")) {
        fputs("sandboxactor-worker is started by the sandboxactor library\n", stderr);
        return 64;
    }
    int control = atoi(argv[2]);
    pid_t host = (pid_t)atol(argv[3]);
    for (int sig = 1; sig < 65; sig++) signal(sig, SIG_DFL);
    /* Nothing of the host is inherited but the control socket, whatever flags its descriptors had. */
    if (control != 3 || syscall(SYS_close_range, 4, ~0U, 0) || chdir("/") || null_streams() || setsid() < 0) return 121;
    plain_scheduling();
    zygote_serve(control, host);
}
