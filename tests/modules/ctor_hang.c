/* The constructor never returns: loading alone must run into the deadline. */
#include "probe.h"
__attribute__((constructor)) static void early(void) { for (;;) __asm__ volatile("" ::: "memory"); }
EXECUTE { (void)in; (void)n; say("never\n"); return p_answer(out, outn); }
RELEASE { (void)len; free(p); }
