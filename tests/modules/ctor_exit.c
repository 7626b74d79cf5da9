/* Leaves with status 0 while it is loaded: no answer was given, so this is no success. */
#include "probe.h"
__attribute__((constructor)) static void early(void) { exit(0); }
EXECUTE { (void)in; (void)n; say("never\n"); return p_answer(out, outn); }
RELEASE { (void)len; free(p); }
