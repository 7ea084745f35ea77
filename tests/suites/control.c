/* A module with two memory errors that the tools must report: it writes a byte after the end of a block, and loses the
 * block. It then refuses to load, so nothing else happens. */
#include <stdlib.h>

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    (void)ctx, (void)argv, (void)argc;
    volatile char *block = malloc(24);
    block[24] = 1;
    block = 0;
    return 1;
}
