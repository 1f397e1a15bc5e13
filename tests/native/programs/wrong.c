/* A replacement that is wrong: it leaves zeros. */
#include "patchkit/attention.h"

int patchkit_attention_run(const struct patchkit_attention *call)
{
    for (int64_t i = 0, all = call->batch * call->o_stride[0]; i < all; i++)
        call->o[i] = 0;
    return PATCHKIT_OK;
}
