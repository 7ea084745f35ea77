// node javascript_client.mjs CLIENT PORT [cluster]: tests the package bloomery-redis with a client, against an empty
// server. With `cluster`, PORT is a node's port, and only the test of clusters runs.

import assert from "node:assert/strict";
import { after, beforeEach, test } from "node:test";
import { Bloom, Cuckoo, FilterFull } from "bloomery-redis";

const [name, port, cluster] = process.argv.slice(2);

async function nodeRedis(library, RESP, create = "createClient") {
    const made = await import(library);
    const options = { RESP, socket: { port: Number(port), reconnectStrategy: false } };
    const client = cluster ? made.createCluster({ rootNodes: [options] }) : made[create](options);
    client.on("error", () => {}); // the commands that wait for a reply are rejected as well
    await client.connect();
    return [client, (...words) => client.sendCommand(words), () => client[client.destroy ? "destroy" : "disconnect"]()];
}

async function ioredis(library, options) {
    const { Redis, Cluster } = await import(library);
    const client = cluster ? new Cluster([Number(port)], options) : new Redis({ port: Number(port), ...options });
    return [client, (...words) => client.call(...words), () => client.disconnect()];
}

const CLIENTS = {
    "node-redis 4": () => nodeRedis("@redis/client-4"),
    "node-redis 5, RESP2": () => nodeRedis("@redis/client", 2),
    "node-redis 5, RESP3": () => nodeRedis("@redis/client", 3),
    "node-redis 5, pool with RESP3": () => nodeRedis("@redis/client", 3, "createClientPool"),
    "ioredis 5": () => ioredis("ioredis"),
    "ioredis 5, stringNumbers": () => ioredis("ioredis", { stringNumbers: true }),
    "ioredis 5, automatic pipelines": () => ioredis("ioredis", { enableAutoPipelining: true }),
    "ioredis 6, RESP3": () => ioredis("ioredis-6", { protocol: 3 }),
    "ioredis 6, maps of RESP3": () => ioredis("ioredis-6", { protocol: 3, replyMapping: "resp3" }),
};

const [client, send, close] = await CLIENTS[name]();
after(close);

const bloom = (key, ...size) => new Bloom(client, key).reserve(...size);
const cuckoo = (key, ...size) => new Cuckoo(client, key).reserve(...size);

function* numbered(count) {
    for (let number = 0; number < count; number++) yield `item:${number}`;
}

if (cluster) {
    test("commands go to the node of the key", async () => {
        for (const key of ["a", "b", "c", Buffer.from("d")]) { // on three nodes
            const filter = await bloom(key, 0.01, 100);
            assert.equal(await filter.add("ada"), true);
            assert.deepEqual(await filter.hasMany(["ada", "eve"]), [true, false]);
        }
    });
} else {
    beforeEach(() => send("FLUSHALL", "SYNC"));

    test("the protocol is the one that the name says", async () => {
        assert.match(String(await send("CLIENT", "INFO")), name.endsWith("RESP3") ? /resp=3/ : /resp=2/);
    });

    test("an item is the same however it is given", async () => {
        const same = [
            ["42", 42, 42n, Buffer.from("42"), new Uint8Array([52, 50])],
            ["-7", -7, -7n],
            ["18446744073709551616", 2n ** 64n],
            ["naïve ☃ 🌱", Buffer.from("naïve ☃ 🌱")],
            ["", new Uint8Array()],
            [Buffer.from([255, 0, 13, 10]), Buffer.from([0, 255, 0, 13, 10]).subarray(1)],
        ];
        for (const [family, filter] of [["BF", await bloom("b", 1e-6, 100)], ["CF", await cuckoo("c", 1000)]]) {
            for (const [first, ...others] of same) {
                assert.equal(await filter.add(first), true);
                assert.equal(Number(await send(`${family}.EXISTS`, filter.key, first)), 1);
                assert.deepEqual(await filter.hasMany(others), others.map(() => true));
                for (const item of others) assert.equal(await filter.has(item), true);
            }
        }
    });

    test("an array that changes after it was given", async () => {
        const filter = await bloom("b", 1e-6, 100);
        const reused = Buffer.from("ada");
        const items = function* () {
            yield reused;
            reused.write("bob");
            yield reused;
        };
        assert.equal(await filter.addMany(items()), 2);
        assert.deepEqual(await filter.hasMany(["ada", "bob"]), [true, true]);
    });

    test("what isn't an item, or isn't items, is refused", async () => {
        const filters = [await bloom("b", 0.01, 100), await cuckoo("c", 100)];
        const text = /^an item is a string, a Uint8Array, a safe integer or a bigint, not /;
        for (const filter of filters) {
            const one = ["add", "has", "delete", "count"].map((method) => (item) => filter[method](item));
            const named = ["addMany", "hasMany", "deleteMany", "rebuild"].filter((method) => method in filter);
            const many = named.map((method) => (items) => filter[method](items));
            for (const item of [1.5, 2 ** 53, NaN, true, null, undefined, ["a"], {}, new Float64Array(1)]) {
                const wrong = { name: "TypeError", message: text };
                for (const call of one) await assert.rejects(call(item), wrong);
                for (const call of many) await assert.rejects(call(["fine", item]), wrong);
            }
            for (const call of one) await assert.rejects(call("\ud83c"), { name: "TypeError", message: /surrogate/ });
            for (const call of many) {
                for (const items of ["ada", Buffer.from("ada")]) {
                    await assert.rejects(call(items), { name: "TypeError", message: /put it into an array/ });
                }
                for (const items of [5, null, undefined, {}]) {
                    await assert.rejects(call(items), { name: "TypeError", message: /^items are an iterable or async/ });
                }
            }
            assert.equal((await filter.stats()).numberOfItemsInserted, 0);
        }
    });

    test("100,000 items of an async iterable, read only as fast as they are added", async () => {
        const filter = await bloom("b", 1e-6, 100_000);
        let [given, most] = [0, 0];
        const items = async function* () {
            for (; given < 100_000; given++) {
                if (given % 5000 === 4999) most = Math.max(most, given - (await filter.card()));
                yield `item:${given}`;
            }
        };
        const added = await filter.addMany(items());
        assert.ok(added > 99_990, `${added}`);
        assert.ok(most > 0 && most <= 65536 / "----item:1".length, `${most} items were read ahead`);
        const found = await filter.hasMany(numbered(100_050));
        assert.equal(found.length, 100_050);
        assert.ok(found.slice(0, 100_000).every(Boolean) && found.slice(100_000).filter(Boolean).length < 3);

        const other = await cuckoo("c", 200_000);
        assert.equal(await other.addMany(numbered(20_000)), 20_000);
        assert.equal((await other.hasMany(numbered(20_000))).filter(Boolean).length, 20_000);
        const large = Buffer.alloc(200_000, "x");
        assert.equal(await filter.addMany([large, "y", large]), 2);
        assert.deepEqual(await filter.hasMany([large, "z", "y"]), [true, false, true]);
        assert.deepEqual([await filter.addMany([]), await filter.hasMany([])], [0, []]);
    });

    test("an iterable is closed when the server refuses its items", async () => {
        const filter = await bloom("b", 0.01, 10, { nonscaling: true });
        let closed = false;
        const items = async function* () {
            try {
                yield* numbered(1_000_000);
            } finally {
                closed = true;
            }
        };
        await assert.rejects(filter.addMany(items()), { message: /full; 1\d of \d+ items were added/ });
        assert.ok(closed);
    });

    test("an iterable that yields only what comes after it was asked", async () => { // such as one of node:readline
        const filter = await bloom("b", 1e-6, 100);
        for (const method of ["addMany", "hasMany", "rebuild"]) {
            let asked = false;
            const items = {
                [Symbol.asyncIterator]: () => {
                    asked = true;
                    return (async function* () { yield "ada"; })();
                },
            };
            const done = filter[method](items);
            assert.ok(asked, method);
            await done;
        }
        assert.deepEqual(await filter.hasMany(["ada", "bob"]), [true, false]);
    });

    test("options and statistics", async () => {
        const window = await bloom("w", 0.01, 100, { window: 25, every: 3_600_000, since: new Date(), onfull: "ERROR" });
        const { generations, rotatesEveryMs, nextRotationInMs, onFull } = await window.stats();
        assert.deepEqual([generations, rotatesEveryMs, onFull], [25, 3_600_000, "ERROR"]);
        assert.ok(nextRotationInMs > 0 && nextRotationInMs <= 3_600_000);
        const fixed = await bloom("f", 0.01, 100, { nonscaling: true, expansion: null, seed: undefined, counting: false });
        await fixed.addMany(["a", "b"]);
        const { layers: [layer, ...older], feedback, ...stats } = await fixed.stats();
        const { kind, errorRate, advice, rebuild, capacity, expansionRate } = stats;
        assert.deepEqual([kind, errorRate, advice, rebuild, capacity], ["fixed", 0.01, [], null, 100]);
        assert.ok(stats.fill > 0 && stats.fill < 0.1 && stats.errorRateNow < 0.001 && layer.fill === stats.fill);
        assert.deepEqual([layer.capacity, older, expansionRate], [100, [], undefined]);
        assert.deepEqual(feedback.minute, { checked: 0, false: 0, shareFalse: null, observedErrorRate: null });
        assert.match(stats.identity, /^[0-9a-f]{16}$/);
        const { size, ...info } = await fixed.info();
        assert.ok(size > 100);
        assert.deepEqual(info, { capacity: 100, numberOfFilters: 1, numberOfItemsInserted: 2, expansionRate: null });
        for (const like of [fixed, "f", Buffer.from("f"), new Uint8Array([102])]) {
            const two = await bloom("two", 0.01, 100, { like });
            assert.equal((await two.stats()).identity, stats.identity);
            await send("DEL", "two");
        }
        const other = await cuckoo("c", 100, { bucketsize: 4, expansion: 0 });
        const { bucketSize, expansionRate: growth, errorRate: rate } = await other.stats();
        assert.deepEqual([bucketSize, growth], [4, 0]);
        assert.ok(rate > 0.01 && rate < 0.1);
        assert.equal((await other.info()).bucketSize, 4);
    });

    test("impossible options are refused before anything is sent", async () => {
        const wrong = [
            [[0, 100], "errorRate is above 0 and below 1, not 0"],
            [["0.01", 100], "errorRate is above 0 and below 1, not '0.01'"],
            [[NaN, 100], "errorRate is above 0 and below 1, not NaN"],
            [[0.01, -1], "capacity is an integer from 0 to 281474976710656, not -1"],
            [[0.01, 1.5], "capacity is an integer from 0 to 281474976710656, not 1.5"],
            [[0.01], "capacity is an integer from 0 to 281474976710656, not undefined"],
            [{ expansion: -1 }, "expansion is an integer from 0 to 32768, not -1"],
            [{ counting: 5 }, "counting is one of true, 4, 8, 16, not 5"],
            [{ window: 1 }, "window is an integer from 2 to 1000, not 1"],
            [{ ttl: "1d" }, "ttl is an integer from 1 to 9007199254740991, not '1d'"],
            [{ ttl: 0.5 }, "ttl is an integer from 1 to 9007199254740991, not 0.5"],
            [{ since: new Date("never") }, "since is an integer from 0 to 9007199254740991, not NaN"],
            [{ shards: 3 }, "shards is a power of two up to 1024, not 3"],
            [{ hash: "MD5" }, "hash is one of 'XXH3', 'SIPHASH', not 'MD5'"],
            [{ layout: "blocked" }, /^layout is one of 'AUTO', .*, not 'blocked'$/],
            [{ seed: "xyz" }, "seed is 1 to 32 hexadecimal digits, not 'xyz'"],
            [{ seed: "0".repeat(33) }, /^seed is 1 to 32 hexadecimal digits, not '0{33}'$/],
            [{ tightening: 1 }, "tightening is above 0 and below 1, not 1"],
            [{ like: {} }, "like is a filter, a string or a Uint8Array, not {}"],
        ];
        await send("CONFIG", "RESETSTAT");
        for (const [given, message] of wrong) {
            const size = Array.isArray(given) ? given : [0.01, 100, given];
            await assert.rejects(bloom("b", ...size), { name: "RangeError", message });
            if (size === given) continue;
            await assert.rejects(new Bloom(client, "b").rebuild([], given), { name: "RangeError", message });
        }
        const small = { name: "RangeError", message: "capacity is an integer from 1 to 281474976710656, not 0" };
        await assert.rejects(cuckoo("c", 0), small);
        await assert.rejects(new Bloom(client, "b").rebuild([], { capacity: 0 }), small);
        const text = { name: "RangeError", message: "bucketsize is an integer from 1 to 255, not 256" };
        await assert.rejects(cuckoo("c", 10, { bucketsize: 256 }), text);
        assert.doesNotMatch(String(await send("INFO", "commandstats")), /cmdstat_[bc]f/i);
    });

    test("what isn't a client or a key is refused", async () => {
        const { createSentinel } = await import("@redis/client");
        const sentinel = createSentinel({ name: "primary", sentinelRootNodes: [{ host: "127.0.0.1", port }] });
        for (const wrong of [undefined, {}, client.multi?.(), client.pipeline?.(), sentinel]) {
            assert.throws(() => new Bloom(wrong, "b"), { name: "TypeError", message: /^client is a client of node-redis/ });
        }
        for (const key of [undefined, null, 5]) {
            assert.throws(() => new Cuckoo(client, key), { name: "TypeError", message: /^key is a string or a Uint8/ });
        }
    });

    test("the server's errors", async () => {
        const filter = await bloom("b", 0.01, 10, { nonscaling: true });
        await assert.rejects(filter.reserve(0.01, 10), { message: /item exists/ });
        assert.equal(await filter.reserve(0.01, 10, { existOk: true }), filter);
        await assert.rejects(bloom("x", 0.01, 10, { color: "red" }), { message: /unknown option 'COLOR'/ });
        await assert.rejects(bloom("x", 0.01, 10, { counting: 4, window: 2, existOk: true }), { message: /exclude each/ });
        await assert.rejects(filter.deleteMany(["ada"]), { message: /not a counting filter/ });
        await send("SET", "text", "x");
        await cuckoo("c", 100);
        for (const [Kind, keys] of [[Bloom, ["text", "c"]], [Cuckoo, ["text", "b"]]]) {
            const missing = new Kind(client, "missing");
            await assert.rejects(missing.add("ada"), { message: /not found/ });
            assert.deepEqual([await missing.has("ada"), await missing.hasMany(["a", "b"])], [false, [false, false]]);
            for (const key of keys) {
                const wrong = new Kind(client, key);
                for (const method of ["has", "count", "add"]) {
                    await assert.rejects(wrong[method]("ada"), { message: /^WRONGTYPE/ });
                }
            }
        }
        assert.equal(Number(await send("EXISTS", "missing", "x")), 0);
    });

    test("an error at the end of an answer", async () => { // such as for a key that is deleted during a long command
        await bloom("full", 0.01, 10, { nonscaling: true });
        const words = ["BF.INSERT", "full", "ITEMS", ...numbered(20)]; // answers in the same way
        const ending = { sendCommand: (_, options) => client.sendCommand(words, options) };
        if (client.createBuiltinCommand) {
            const { buffer } = client.createBuiltinCommand(words.shift());
            ending.createBuiltinCommand = () => ({ buffer: () => buffer.call(client, words) });
        }
        const [some, other] = [new Bloom(ending, "b"), new Cuckoo(ending, "c")];
        await assert.rejects(some.deleteMany(["a"]), { message: "ERR non scaling filter is full" });
        await assert.rejects(other.hasMany(["a"]), { message: "ERR non scaling filter is full" });
        for (const ifAbsent of [true, false]) {
            await assert.rejects(other.addMany(["a"], { ifAbsent }), { message: "ERR non scaling filter is full" });
        }
    });

    test("counting filters and windows", async () => {
        const stock = await bloom("b", 1e-4, 100, { counting: 4 });
        assert.equal(await stock.addMany(["bolt", "bolt", "nut"]), 2);
        assert.equal(await stock.count("bolt"), 2);
        assert.deepEqual([await stock.delete("bolt"), await stock.delete("washer")], [true, false]);
        assert.deepEqual(await stock.deleteMany(["bolt", "nut", "bolt"]), [true, true, false]);
        assert.equal(await stock.card(), 0);
        const recent = await bloom("w", 1e-4, 100, { window: 3 });
        await recent.add("ada");
        assert.equal(await recent.age("ada"), 0);
        await recent.rotate();
        assert.deepEqual([await recent.age("ada"), await recent.age("eve")], [1, null]);
        await recent.clear();
        assert.deepEqual([await recent.has("ada"), await recent.card()], [false, 0]);
        assert.equal((await (await bloom("t", 0.01, 100, { ttl: 60_000, steps: 5 })).stats()).kind, "window");
    });

    test("a rebuild replaces the filter at the end, or not at all", async () => {
        const filter = await bloom("b", 1e-6, 1000);
        await filter.add("old");
        const items = async function* (fails) {
            yield* numbered(20_000);
            assert.deepEqual(await filter.hasMany(["old", "item:1"]), [true, false]);
            if (fails) throw new Error("the file ends early");
        };
        const rebuilding = async () => (await filter.stats()).rebuild;
        await assert.rejects(filter.rebuild(items(true), { capacity: 20_000 }), { message: "the file ends early" });
        assert.deepEqual([await filter.has("old"), await rebuilding()], [true, null]);
        await filter.rebuild(items(false), { capacity: 20_000, errorRate: 0.001, nonscaling: true });
        assert.deepEqual([await filter.has("old"), await filter.has("item:1"), await rebuilding()], [false, true, null]);
        const { capacity, errorRate, kind } = await filter.stats();
        assert.deepEqual([capacity, errorRate, kind], [20_000, 0.001, "fixed"]);
        await assert.rejects(filter.rebuild(numbered(60_000), { capacity: 100 }), { message: /full|no rebuild/ });
        assert.deepEqual([await filter.has("item:1"), await rebuilding()], [true, null]);
        // Another client ends the rebuild, and begins its own.
        const overtaken = async function* () {
            yield "ada";
            await filter._ask("REBUILD", "ABORT");
            await filter._ask("REBUILD", "BEGIN");
        };
        await assert.rejects(filter.rebuild(overtaken()), { message: "another rebuild of the filter has begun" });
        assert.equal((await rebuilding()).numberOfItemsInserted, 0);
    });

    test("cuckoo filters", async () => {
        const filter = await cuckoo("c", 1000, { seed: "1" });
        assert.deepEqual([await filter.add("ada"), await filter.add("ada")], [true, true]);
        assert.deepEqual([await filter.add("ada", { ifAbsent: true }), await filter.count("ada")], [false, 2]);
        assert.equal(await filter.addMany(["ada", "bob", "bob"], { ifAbsent: true }), 1);
        assert.deepEqual([await filter.delete("ada"), await filter.delete("zoe")], [true, false]);
        assert.deepEqual([await filter.count("ada"), await filter.count("zoe")], [1, 0]);
        const small = await cuckoo("s", 4, { expansion: 0 });
        const text = /^no room for \d+ of 100 items. Reserve a larger filter, or one that grows$/;
        for (const ifAbsent of [true, false]) {
            const adding = small.addMany(numbered(100), { ifAbsent });
            await assert.rejects(adding, (error) => error instanceof FilterFull && text.test(error.message));
        }
    });
}
