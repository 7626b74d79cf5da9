/* One attack for each guard, as a native Action: the payload is "guard" or "guard argument", the answer "open" if the
 * attack worked and "held" if it was refused. sandboxactor.testing runs each confined and, as its control, unconfined. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void *sleeper(void *arg) { sleep(2); return arg; }

static int spawns(void)
{
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    if (pid > 0) waitpid(pid, NULL, 0);
    return pid > 0;
}

static int allocates(size_t mib)
{
    for (size_t i = 0; i < mib; i++) {
        char *p = malloc(1 << 20);
        if (!p) return 0;
        memset(p, 1, 1 << 20);
    }
    return 1;
}

/* More than a quarter of one core for 0.7 seconds, which a loaded machine still gives. */
static int burns(void)
{
    double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
    while (seconds(CLOCK_MONOTONIC) - wall < 0.7) { }
    return seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu > 0.2;
}

static int threads(int wanted)
{
    pthread_t t;
    for (int i = 0; i < wanted; i++)
        if (pthread_create(&t, NULL, sleeper, NULL)) return 0;
    return 1;
}

static int privileged(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {0};
    return syscall(SYS_capget, &head, data) == 0 && (geteuid() == 0 || data[0].effective || data[1].effective);
}

static int attack(const char *guard, const char *argument)
{
    struct stat st;
    if (!strcmp(guard, "files_scoped")) return open(argument, O_RDONLY | O_CLOEXEC) >= 0;
    if (!strcmp(guard, "files_hidden")) return stat(argument, &st) == 0;
    if (!strcmp(guard, "no_spawn")) return spawns();
    if (!strcmp(guard, "network_off") || !strcmp(guard, "network_domains")) return socket(AF_INET, SOCK_STREAM, 0) >= 0;
    if (!strcmp(guard, "memory_max")) return allocates((size_t)atoi(argument));
    if (!strcmp(guard, "cpu_max")) return burns();
    if (!strcmp(guard, "processes_max")) return threads(atoi(argument));
    if (!strcmp(guard, "wall_time")) return sleep(3) == 0;
    if (!strcmp(guard, "identity")) return privileged();
    if (!strcmp(guard, "no_new_privs")) return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0;
    return 1;
}

int allascode_action_execute(const unsigned char *input, size_t length, unsigned char **output, size_t *output_length)
{
    char text[4096] = {0}, *argument;
    memcpy(text, input, length < sizeof text - 1 ? length : sizeof text - 1);
    argument = strchr(text, ' ');
    if (argument) *argument++ = 0;
    int open_door = attack(text, argument ? argument : "");
    size_t size = open_door && !strcmp(text, "output_max") ? 1 << 20 : 4;
    *output = malloc(size);
    if (!*output) return ENOMEM;
    memset(*output, 0, size);
    memcpy(*output, open_door ? "open" : "held", 4);
    *output_length = size;
    return 0;
}

void allascode_action_free(unsigned char *p, size_t length) { (void)length; free(p); }
