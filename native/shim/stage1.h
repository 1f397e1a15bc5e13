/* What the files of stage 1 know of each other. All of it is compiled without vector registers. */
#ifndef PATCHKIT_STAGE1_H
#define PATCHKIT_STAGE1_H

#include "patchkit/shim.h"

#include <stdatomic.h>
#include <stdbool.h>

/* The number of symbols.inc's rows, and their names. */
enum {
#define PK_SYMBOL(engine, releases, object, hook, symbol) PK_INDEX_##symbol,
#include "symbols.inc"
#undef PK_SYMBOL
    PK_HOW_MANY
};
static_assert((int)PK_HOW_MANY <= (int)PK_SYMBOLS, "no more than the segment has room for");

extern const char *const pk_names[PK_HOW_MANY];
extern const char *const pk_objects[PK_HOW_MANY];

/* Of the assembler. pk_unbound is what the two others hold at first: the slow path. */
extern _Atomic(void *) pk_target[PK_HOW_MANY], pk_real[PK_HOW_MANY];
extern void *const pk_unbound[PK_HOW_MANY];
extern struct pk_control *pk_control;
extern _Thread_local struct pk_slot *pk_self __attribute__((tls_model("initial-exec")));

/* Called by the assembler. */
void *pk_decide(unsigned index, void *return_address, int counted);
uint32_t pk_vector_mask(void);
uint64_t pk_vector_bytes(void);

/* text.c: what libc's printf family would need a buffer, a lock or a locale for. */
struct pk_text {
    char *at, *end;
};
void pk_append(struct pk_text *text, const char *words);
void pk_append_number(struct pk_text *text, uint64_t number);
void pk_say(const char *words, const char *detail);
__attribute__((noreturn)) void pk_die(const char *words, const char *detail);

/* regular.c: a file to read; -1 for a FIFO or a device. */
int pk_open_regular(const char *path);

/* segment.c: the shared file, its slots and rings. */
int pk_create(const char *path);
bool pk_open_segment(void);
bool pk_is_awake(void);
void pk_count(unsigned index);
void pk_record(const struct pk_record *record);
void pk_forked(void);
void pk_bound_to(unsigned index, const void *address, const char *object, enum pk_way way);
void pk_typed(unsigned index);
void pk_tell_stage2(enum pk_stage2 state, const char *message);

/* resolve.c: the real function. Returns NULL with `found` saying why. */
struct pk_found {
    void *address;
    enum pk_way way;
    char object[PK_PATH];
    char others[PK_PATH];
};
bool pk_resolve(unsigned index, void *return_address, struct pk_found *found);

/* identity.c: what tells one library from another: build-id, else a digest. Hexadecimal. */
enum { PK_IDENTITY = 80 };
bool pk_identify(const char *object, char identity[PK_IDENTITY]);
struct pk_torch {
    char c10[PK_PATH]; /* its libc10.so; empty: no torch is loaded */
    char identity[PK_IDENTITY];
    char version[64];
    bool cxx11; /* std::string is the new one */
};
void pk_find_torch(struct pk_torch *torch);

/* manifest.c: what stage 2 was built for. False: it does not fit here, and `why` says so. */
struct pk_manifest {
    char text[8192];
    uint64_t length;
    char sha256[65];
};
bool pk_read_manifest(struct pk_manifest *manifest, const char *stage2, struct pk_text *why);
bool pk_fits_stage1(const struct pk_manifest *manifest, struct pk_text *why);
bool pk_fits_torch(const struct pk_manifest *manifest, struct pk_text *why);
bool pk_fits_engine(const struct pk_manifest *manifest, const char *object, struct pk_text *why);

/* bind.c: opens stage 2 once; returns its hook for a symbol, or the real function. */
void *pk_hook_for(unsigned index, void *real, const char *object);
void pk_forked_binding(void);

/* layout.c: the digest of the structs that this build shares; whether another's table says the same. */
struct patchkit_layout_table;
void pk_own_layout(char hex[65]);
bool pk_fits_layout(const struct patchkit_layout_table *table);

/* sha256.c */
struct pk_sha256 {
    uint32_t state[8];
    uint64_t length;
    unsigned char block[64];
};
void pk_sha256_begin(struct pk_sha256 *sha);
void pk_sha256_add(struct pk_sha256 *sha, const void *bytes, size_t count);
void pk_sha256_end(struct pk_sha256 *sha, char hex[65]);

#endif
