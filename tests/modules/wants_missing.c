/* Needs libsa_missing.so, which exists only while this is linked: it can never be loaded. */
#include "probe.h"
int companion_word(void);
EXECUTE { (void)in; (void)n; say("missing=%d\n", companion_word()); return p_answer(out, outn); }
RELEASE { (void)len; free(p); }
