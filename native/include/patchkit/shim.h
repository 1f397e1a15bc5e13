/* What the shim shares: with `patchkit native` through a file in shared memory, with stage 2 through a table.
 *
 * The segment is one file, made by the process that is watched, 0600, named patchkit-PID-STARTTIME:
 *   pk_control, pk_symbol[PK_SYMBOLS], pk_slot[PK_SLOTS], then a ring of pk_record[PK_RECORDS] for each slot.
 * A slot belongs to one thread, which alone writes to it; a reader writes only the settings. patchkit/native/segment.py
 * reads it by the same numbers, and a test compares them. */
#ifndef PATCHKIT_SHIM_H
#define PATCHKIT_SHIM_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define PK_MAGIC 0x4b48435441504b50ull /* "PKPATCHK" */
#define PK_VERSION 1u

enum { PK_SYMBOLS = 16, PK_SLOTS = 256, PK_RECORDS = 256, PK_NAME = 512, PK_PATH = 384 };

enum pk_mode { PK_OFF = 0, PK_COUNT = 1, PK_TRACE = 2, PK_TRANSFORM = 3, PK_REPLACE = 4 };

/* How the real function was found. */
enum pk_way { PK_UNBOUND = 0, PK_NEXT = 1, PK_OBJECT = 2, PK_CALLER = 3, PK_DISPATCHER = 4 };

enum pk_stage2 { PK_NONE = 0, PK_BINDING = 1, PK_BOUND = 2, PK_REFUSED = 3 };

/* What `patchkit native set` writes, each field by one store. Floating point numbers travel as their bits. */
struct pk_settings {
    uint32_t mode;
    uint32_t every;      /* replace: compare every Nth call with the real one; 0: never */
    uint64_t qk_scale;   /* double; a factor on the softmax scale */
    int32_t window;      /* a query sees so many keys; 0: as called */
    int32_t rope_offset; /* attention_forward: turns q by so many positions */
    uint64_t rope_theta; /* double */
    uint64_t tolerance;  /* double; replace: the largest difference that is not one */
    uint64_t era;        /* one more with each `set` */
    uint64_t reserved[2];
};

struct pk_control {
    uint64_t magic;
    uint32_t version, symbols; /* how many of the symbols there are */
    uint64_t length;           /* of the whole segment, bytes */
    uint32_t pid, uid;
    uint64_t start_time; /* clock ticks since boot, field 22 of /proc/PID/stat */
    uint32_t claimed;    /* slots that were handed out; more than PK_SLOTS: some threads had none */
    uint32_t stage2;     /* enum pk_stage2 */
    uint64_t unrecorded; /* records of threads without a slot */
    uint64_t reserved;
    struct pk_settings settings;
    uint64_t compared, differed, replaced; /* of the mode replace */
    char message[PK_PATH];                 /* why stage 2 is not used, or what was refused */
    uint64_t overflow[PK_SYMBOLS];         /* calls of threads without a slot */
    char program[PK_PATH];
    uint8_t unused[3048];
};

struct pk_symbol {
    char name[PK_NAME];
    char object[PK_PATH]; /* where the real function is */
    uint64_t address;
    uint32_t way;   /* enum pk_way */
    uint32_t typed; /* 1: stage 2 stands before it */
    uint8_t unused[112];
};

struct pk_slot {
    uint32_t tid;        /* 0: free */
    uint32_t ringed;     /* 1: memory for the ring is there */
    uint64_t written;    /* records so far; the next one has this number + 1 */
    uint64_t unrecorded; /* records for which there was no memory, or that a signal handler would have torn */
    uint32_t writing;
    uint32_t unused0;
    uint64_t unused1[4];
    uint64_t calls[PK_SYMBOLS];
    uint8_t unused2[64];
};

/* One call. `sequence` is its number, from 1; 0 while it is being written. */
struct pk_record {
    uint64_t sequence;
    uint64_t begin;       /* ns, as CLOCK_MONOTONIC counts, or nearly: hooks/clock.hpp */
    uint64_t nanoseconds; /* of the call; on a GPU of its launch */
    uint16_t symbol;
    uint8_t dtype;  /* c10::ScalarType */
    uint8_t device; /* c10::DeviceType: 0 CPU, 1 CUDA */
    uint32_t tid;
    int32_t q[4], k[4], o[4]; /* shapes, 0 beyond the last dimension */
    uint64_t scale;           /* double */
    int32_t window;           /* as called; 0: none */
    uint32_t mode;
    uint32_t causal;
    uint32_t unused[7];
};

#define PK_SYMBOLS_AT sizeof(struct pk_control)
#define PK_SLOTS_AT (PK_SYMBOLS_AT + PK_SYMBOLS * sizeof(struct pk_symbol))
#define PK_RINGS_AT (PK_SLOTS_AT + PK_SLOTS * sizeof(struct pk_slot))
#define PK_RING_BYTES (PK_RECORDS * sizeof(struct pk_record))
#define PK_SEGMENT_BYTES (PK_RINGS_AT + PK_SLOTS * PK_RING_BYTES)

/* What stage 1 gives to stage 2. `control` is read at every call: a fork changes where it points. */
struct pk_services {
    uint32_t size, version;
    struct pk_control *const *control;
    void (*record)(const struct pk_record *); /* fills sequence and tid; errno is kept */
    void *reserved;
};

/* What stage 2 exports as pk_hooks, ended by a row without a symbol. Stage 1 fills `real` and `index` before a hook
 * can be called. */
struct pk_hook {
    const char *symbol;
    void *hook;
    void **real;
    uint32_t *index;
};

/* Exported by stage 2 too; returns 0, or what it cannot live with is said by another number. */
typedef int pk_start(const struct pk_services *services);

static_assert(sizeof(struct pk_settings) == 64, "pk_settings");
static_assert(sizeof(struct pk_control) == 4096, "pk_control");
static_assert(offsetof(struct pk_control, settings) == 64, "pk_control.settings");
static_assert(offsetof(struct pk_control, message) == 152, "pk_control.message");
static_assert(offsetof(struct pk_control, overflow) == 536, "pk_control.overflow");
static_assert(offsetof(struct pk_control, program) == 664, "pk_control.program");
static_assert(sizeof(struct pk_symbol) == 1024, "pk_symbol");
static_assert(offsetof(struct pk_symbol, address) == 896, "pk_symbol.address");
static_assert(sizeof(struct pk_slot) == 256, "pk_slot");
static_assert(offsetof(struct pk_slot, calls) == 64, "pk_slot.calls");
static_assert(sizeof(struct pk_record) == 128, "pk_record");
static_assert(offsetof(struct pk_record, q) == 32, "pk_record.q");
static_assert(offsetof(struct pk_record, scale) == 80, "pk_record.scale");
static_assert(PK_RINGS_AT % 4096 == 0, "the rings begin on a page");

#endif
