/* A module with two errors in memory, which what watches for them must report: a byte is written behind a block, and
 * the block is lost. It then refuses to load, so nothing else happens. */
#include <stdlib.h>

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    (void)ctx, (void)argv, (void)argc;
    volatile char *block = malloc(24);
    block[24] = 1;
    block = 0;
    return 1;
}
