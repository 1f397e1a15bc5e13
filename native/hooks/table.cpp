// The table by which stage 1 finds the hooks, made from the rows of this build.
#include "hook.hpp"

#define PK_SYMBOL(engine, releases, object, hook, symbol)                                                              \
    extern "C" void pk_call_##hook();                                                                                  \
    extern "C" void *pk_real_##hook;                                                                                   \
    extern "C" uint32_t pk_index_##hook;
#include "hooks.inc"
#undef PK_SYMBOL

extern "C" {

__attribute__((visibility("default"))) extern const pk_hook pk_hooks[] = {
#define PK_SYMBOL(engine, releases, object, hook, symbol)                                                              \
    {#symbol, reinterpret_cast<void *>(&pk_call_##hook), &pk_real_##hook, &pk_index_##hook},
#include "hooks.inc"
#undef PK_SYMBOL
    {nullptr, nullptr, nullptr, nullptr},
};

__attribute__((visibility("default"))) int pk_begin(const pk_services *services)
{
    if (services->size != sizeof *services || services->version != PK_VERSION)
        return 1;
    patchkit::services = services;
    patchkit::control = services->control;
    patchkit::ticking.start();
    return 0;
}
}
