/* The library that needs_companion.c wants beside it, built as libcompanion.so. */
int companion_word(void);
int companion_word(void) { return 4711; }
