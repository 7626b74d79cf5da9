/* Needs libcompanion.so in its own folder (RUNPATH $ORIGIN): answers "companion=4711". */
#include "probe.h"
int companion_word(void);
EXECUTE { (void)in; (void)n; p_used = 0; say("companion=%d\n", companion_word()); return p_answer(out, outn); }
RELEASE { (void)len; free(p); }
