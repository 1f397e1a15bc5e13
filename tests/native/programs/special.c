/* Libraries that a shim must understand or refuse: IFUNC, a versioned symbol, protected, hidden. */
#if defined(IFUNC)
static long answer(long value) { return value + 1; }
static long (*resolve(void))(long) { return answer; }
long probe(long value) __attribute__((ifunc("resolve")));
#elif defined(VERSIONED)
long new_probe(long value) { return value + 1; }
__asm__(".symver new_probe, probe@@PROBE_2");
extern long probe(long value);
#elif defined(PROTECTED)
__attribute__((visibility("protected"))) long probe(long value) { return value + 1; }
#else
long probe(long value) { return value + 1; }
#endif
long call_probe(long value) { return probe(value); }
/* The address in a table: what registering an operator leaves in a library. */
long (*const table[])(long) = {probe};
