/* The positive control: loads a module with no confinement at all, calls it once and prints what it answers.
 *
 * usage: loader MODULE [PAYLOAD_FILE]     the payload comes from the file, from standard input for "-", and is empty without one
 * Standard output: a line "rc=N outn=N", then the output itself where rc is 0 and the output can be read.
 * Exit status: 0 the module answered, whatever its rc; 2 usage; 3 it cannot be loaded; 4 a symbol is missing; 5 the payload
 * cannot be read. A module that exits, crashes or hangs does so in this process: the caller sees its status or signal.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int execute_fn(const unsigned char *, size_t, unsigned char **, size_t *);
typedef void free_fn(unsigned char *, size_t);

static unsigned char *slurp(const char *path, size_t *len) {
    FILE *f = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    unsigned char *all = NULL;
    size_t room = 0, k = 0;
    *len = 0;
    if (!f) return NULL;
    do {
        room = room ? room * 2 : 65536;
        unsigned char *more = realloc(all, room);
        if (!more) { free(all); return NULL; }
        all = more;
        k = fread(all + *len, 1, room - *len, f);
        *len += k;
    } while (*len == room);
    int bad = ferror(f);
    if (f != stdin) fclose(f);
    if (bad) { free(all); return NULL; }
    return all;
}

int main(int argc, char **argv) {
    size_t n = 0, outn = 0;
    unsigned char *in = NULL, *out = NULL;
    union { void *object; execute_fn *call; } execute;
    union { void *object; free_fn *call; } release;
    if (argc < 2 || argc > 3) { fprintf(stderr, "usage: loader MODULE [PAYLOAD_FILE|-]\n"); return 2; }
    if (argc == 3 && !(in = slurp(argv[2], &n))) { perror(argv[2]); return 5; }
    void *module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!module) { fprintf(stderr, "%s\n", dlerror()); return 3; }
    execute.object = dlsym(module, "allascode_action_execute");
    release.object = dlsym(module, "allascode_action_free");
    if (!execute.object) { fprintf(stderr, "missing symbol: allascode_action_execute\n"); return 4; }
    if (!release.object) { fprintf(stderr, "missing symbol: allascode_action_free\n"); return 4; }
    int rc = execute.call(in, n, &out, &outn);
    printf("rc=%d outn=%zu\n", rc, outn);
    if (rc == 0 && out && outn <= (size_t)64 << 20) fwrite(out, 1, outn, stdout);
    fflush(stdout);
    if (rc == 0 && out) release.call(out, outn);
    free(in);
    dlclose(module);
    return 0;
}
