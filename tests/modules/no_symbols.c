/* A shared object that is no Action. */
int some_other_function(void);
int some_other_function(void) { return 42; }
