/* The numbers of shim.h, as the compiler has them. */
#include "patchkit/shim.h"

#include <stdio.h>

int main(void)
{
    printf("%zu %zu %zu %zu ", sizeof(struct pk_control), sizeof(struct pk_symbol), sizeof(struct pk_slot),
           sizeof(struct pk_record));
    printf("%zu %zu %zu %zu\n", (size_t)PK_SYMBOLS_AT, (size_t)PK_SLOTS_AT, (size_t)PK_RINGS_AT,
           (size_t)PK_SEGMENT_BYTES);
    return 0;
}
