/* The smallest Action: answers its payload. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int allascode_action_execute(const unsigned char *in, size_t n, unsigned char **out, size_t *outn);
void allascode_action_free(unsigned char *p, size_t len);

int allascode_action_execute(const unsigned char *in, size_t n, unsigned char **out, size_t *outn)
{
    unsigned char *copy = malloc(n ? n : 1);
    if (!copy) return ENOMEM;
    if (n) memcpy(copy, in, n);
    *out = copy;
    *outn = n;
    return 0;
}

void allascode_action_free(unsigned char *p, size_t len)
{
    (void)len;
    free(p);
}
