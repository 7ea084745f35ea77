// What the types of the package bloomery-redis allow and refuse. It is only compiled, by test_javascript_client.py.

import { createClient, createClientPool, createCluster } from "@redis/client";
import { Cluster, Redis } from "ioredis";
import { Redis as Redis6 } from "ioredis-6";
import { Bloom, Cuckoo, FilterFull, type BloomOptions, type BloomStats, type Client } from "bloomery-redis";

const options: BloomOptions = { ttl: 1000, layout: "QUOTIENT", since: new Date(), counting: true, like: Buffer.from("a") };
const ofNodeRedis: Client[] = [createClient(), createClientPool(), createCluster({ rootNodes: [] })];
const clients: Client[] = [...ofNodeRedis, new Redis(), new Cluster([]), new Redis6()];
for (const client of clients) {
    const bloom: Bloom = await new Bloom(client, "a").reserve(0.01, 100, { ...options, existOk: true });
    const stats: BloomStats = await bloom.stats();
    const numbers: number[] = [stats.capacity, stats.layers[0].fill, stats.feedback?.minute.checked ?? 0];
    const added: number = await bloom.addMany((async function* () { yield* ["a", 1, 2n, new Uint8Array()]; })());
    const cuckoo = await new Cuckoo(client, Buffer.from("c")).reserve(100, { bucketsize: 4 });
    const found: boolean[] = await cuckoo.hasMany(new Set([added, ...numbers]));
    console.log(found, new FilterFull().message);

    // @ts-expect-error: a word that the option doesn't have
    await bloom.reserve(0.01, 100, { onfull: "GROW" });
    // @ts-expect-error: an option that doesn't exist
    await bloom.reserve(0.01, 100, { colour: 1 });
    // @ts-expect-error: an option of Bloom filters
    await cuckoo.reserve(100, { ttl: 5 });
    // @ts-expect-error: not an item
    await bloom.add(true);
    // @ts-expect-error: a field that not every filter has
    stats.generations.toFixed();
}
// @ts-expect-error: not a client
new Bloom({}, "a");
