/* Answers well, then its destructor never returns: the answer counts, and the process must still be gone in time. */
#include "probe.h"
__attribute__((destructor)) static void late(void) { for (;;) __asm__ volatile("" ::: "memory"); }
EXECUTE { (void)in; (void)n; say("answered\n"); return p_answer(out, outn); }
RELEASE { (void)len; free(p); }
