// Debian: libhiredis-dev. cc c_hiredis.c -lhiredis
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    redisContext *client = redisConnect("127.0.0.1", argc > 1 ? atoi(argv[1]) : 6379);
    // The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian).
    const char added[] = "\3\0\0\0ada\5\0\0\0grace", asked[] = "\3\0\0\0ada\7\0\0\0barbara";
    freeReplyObject(redisCommand(client, "BF.RESERVE users 0.001 1000"));
    redisReply *isnew = redisCommand(client, "BF.ADD users %s", "ada");
    redisReply *more = redisCommand(client, "BF.BULKADD users PREFIXED %b", added, sizeof added - 1);
    redisReply *bits = redisCommand(client, "BF.BULKTEST users PREFIXED %b", asked, sizeof asked - 1);
    redisReply *stats = redisCommand(client, "BF.STATS users"); // alternating names and values
    for (size_t i = 0; i + 1 < stats->elements; i += 2)
        if (!strcmp(stats->element[i]->str, "Number of items inserted"))
            printf("%lld %lld %02x %lld\n", isnew->integer, more->integer, (unsigned char)bits->str[0],
                   stats->element[i + 1]->integer);
    freeReplyObject(isnew);
    freeReplyObject(more);
    freeReplyObject(bits);
    freeReplyObject(stats);
    redisFree(client);
}
