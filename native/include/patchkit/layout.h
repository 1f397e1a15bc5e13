/* A library's own table of the structs that it shares, as its compiler laid them out.
 *
 * patchkit.abi.layout_table writes the source of such a table from a header and reads the table back from the loaded
 * library, so that a library that was built from another header is told by the field. */
#ifndef PATCHKIT_LAYOUT_H
#define PATCHKIT_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#define PATCHKIT_LAYOUT_VERSION 1u

struct patchkit_layout_field {
    const char *name;
    uint32_t offset, size; /* bytes; size 0 for a flexible array */
    uint32_t alignment;    /* of its type */
    uint32_t reserved;
};

struct patchkit_layout {
    const char *name; /* without the word struct */
    const struct patchkit_layout_field *fields;
    uint32_t count;
    uint32_t size, alignment; /* bytes */
    uint32_t reserved;
};

struct patchkit_layout_table {
    uint32_t version;
    uint32_t count;
    const struct patchkit_layout *structs;
};

#ifdef __cplusplus
extern "C"
#else
extern
#endif
    __attribute__((visibility("default"))) const struct patchkit_layout_table patchkit_layout_table;

/* A row of an array of struct patchkit_layout_field. */
#define PATCHKIT_LAYOUT_FIELD(type, member)                                                                            \
    {#member, offsetof(type, member), sizeof(((type *)0)->member), __alignof__(__typeof__(((type *)0)->member)), 0}

/* A row of an array of struct patchkit_layout. */
#define PATCHKIT_LAYOUT_STRUCT(name, type, fields)                                                                     \
    {name, fields, sizeof(fields) / sizeof((fields)[0]), sizeof(type), __alignof__(type), 0}

#endif
