// node node_redis.mjs PORT PROTOCOL FAMILY: sends the commands of a program that uses node-redis and its package
// @redis/bloom, and checks the replies. FAMILY is "bloom", "cuckoo" or "sketches". The packages are loaded from the
// working directory. The server must be empty. Prints "done" if every reply is right.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const { createClient, RESP_TYPES } = require("@redis/client");
const { default: modules } = require("@redis/bloom");

const [port, protocol, family] = process.argv.slice(2);
const RESP = Number(protocol);

// Answers in replies that the package doesn't convert: 1 or 0 in RESP2, a boolean in RESP3.
const yes = RESP === 3 ? true : 1;
const no = RESP === 3 ? false : 0;

const items = Array.from({ length: 3000 }, (_, number) => `item:${number}`);

async function bloom(client) {
    const { bf } = client;
    assert.equal(await bf.reserve("seen", 0.01, 1000), "OK");
    assert.equal(await bf.add("seen", "ada"), true);
    assert.equal(await bf.add("seen", "ada"), false);
    assert.deepEqual(await bf.mAdd("seen", ["ada", "bob", "cid"]), [false, true, true]);
    assert.equal(await bf.exists("seen", "ada"), true);
    assert.equal(await bf.exists("seen", "zoe"), false);
    assert.equal(await bf.exists("missing", "ada"), false);
    assert.deepEqual(await bf.mExists("seen", ["ada", "zoe", "bob"]), [true, false, true]);
    assert.equal(await bf.card("seen"), 3);
    assert.equal(await bf.card("missing"), 0);

    const options = { CAPACITY: 500, ERROR: 0.02, EXPANSION: 3 };
    assert.deepEqual(await bf.insert("made", ["a", "b", "a"], options), [true, true, false]);
    await assert.rejects(bf.insert("missing", "a", { NOCREATE: true }), { message: "ERR not found" });

    const { Size, ...made } = await bf.info("made");
    assert.ok(Size > 500 && Size < 2500, `Size ${Size}`);
    assert.deepEqual(made, {
        "Capacity": 500,
        "Number of filters": 1,
        "Number of items inserted": 2,
        "Expansion rate": 3,
    });
    await assert.rejects(bf.info("missing"), { message: "ERR not found" });

    assert.equal(await bf.reserve("fixed", 1e-9, 2, { NONSCALING: true }), "OK");
    assert.equal((await bf.info("fixed"))["Expansion rate"], null);
    assert.deepEqual(await bf.mAdd("fixed", ["a", "b"]), [true, true]);
    await assert.rejects(bf.add("fixed", "c"), { message: "ERR non scaling filter is full" });
    await assert.rejects(bf.reserve("fixed", 0.01, 10), { message: "ERR item exists" });

    await bf.reserve("source", 0.001, 2_000_000);
    await bf.mAdd("source", items);
    await copy(client, "bf");
    assert.deepEqual(await bf.mExists("target", items), items.map(() => true));
    assert.equal(await bf.card("target"), await bf.card("source"));

    // The package has no methods for these commands, but it can send any command.
    assert.equal(await client.sendCommand(["BF.RESERVE", "counts", "0.01", "100", "COUNTING"]), "OK");
    assert.deepEqual(await bf.mAdd("counts", ["a", "a"]), [true, false]);
    assert.equal(await client.sendCommand(["BF.COUNT", "counts", "a"]), 2);
    assert.equal(await client.sendCommand(["BF.DEL", "counts", "a"]), yes);
    assert.deepEqual(await client.sendCommand(["BF.MDEL", "counts", "a", "a"]), [yes, no]);
    assert.equal(await client.sendCommand(["BF.COUNT", "counts", "a"]), 0);

    const transaction = client.multi().bf.add("fresh", "a").bf.exists("fresh", "a").bf.mAdd("fresh", ["a", "b"]);
    assert.deepEqual(await transaction.exec(), [true, true, [false, true]]);
}

async function cuckoo(client) {
    const { cf } = client;
    // With a random seed, two items would sometimes look alike, or both buckets of an item would be the same one.
    const reserveSeeded = (key) => client.sendCommand(["CF.RESERVE", key, "1000", "SEED", "1"]);
    await reserveSeeded("seen");
    assert.equal(await cf.add("seen", "ada"), true);
    assert.equal(await cf.add("seen", "ada"), true);
    assert.equal(await cf.addNX("seen", "ada"), false);
    assert.equal(await cf.addNX("seen", "bob"), true);
    assert.equal(await cf.exists("seen", "ada"), true);
    assert.equal(await cf.exists("seen", "zoe"), false);
    assert.equal(await cf.exists("missing", "ada"), false);
    assert.deepEqual(await client.sendCommand(["CF.MEXISTS", "seen", "ada", "zoe", "bob"]), [yes, no, yes]);
    assert.equal(await cf.count("seen", "ada"), 2);
    assert.equal(await cf.count("seen", "zoe"), 0);
    assert.equal(await cf.count("missing", "ada"), 0);
    assert.equal(await cf.del("seen", "ada"), true);
    assert.equal(await cf.del("seen", "zoe"), false);
    assert.equal(await cf.count("seen", "ada"), 1);
    await assert.rejects(cf.del("missing", "ada"), { message: "Not found" });

    const { Size, ...seen } = await cf.info("seen");
    assert.ok(Size > 1024 && Size < 2048, `Size ${Size}`);
    assert.deepEqual(seen, {
        "Number of buckets": 512,
        "Number of filters": 1,
        "Number of items inserted": 2,
        "Number of items deleted": 1,
        "Bucket size": 2,
        "Expansion rate": 1,
        "Max iterations": 20,
    });
    await assert.rejects(cf.info("missing"), { message: "ERR not found" });

    // CF.INSERTNX returns integers even in RESP3, where the package doesn't convert the command's replies.
    const [added, there, full] = RESP === 3 ? [1, 0, -1] : [true, false, false];
    assert.deepEqual(await cf.insert("seen", ["a", "b", "a"], { NOCREATE: true }), [true, true, true]);
    assert.deepEqual(await cf.insertNX("seen", ["a", "c", "c"], { NOCREATE: true }), [there, added, there]);
    assert.deepEqual(await cf.insert("made", "a", { CAPACITY: 500 }), [true]);
    assert.equal((await cf.info("made"))["Number of buckets"], 256);
    await assert.rejects(cf.insert("missing", "a", { NOCREATE: true }), { message: "ERR not found" });
    await assert.rejects(cf.insertNX("missing", "a", { NOCREATE: true }), { message: "ERR not found" });

    const options = { BUCKETSIZE: 4, MAXITERATIONS: 50, EXPANSION: 2 };
    assert.equal(await cf.reserve("shaped", 1000, options), "OK");
    const shaped = await cf.info("shaped");
    assert.deepEqual([shaped["Bucket size"], shaped["Max iterations"], shaped["Expansion rate"]], [4, 50, 2]);

    // There is room for two copies of an item if both of its buckets are the same one, and otherwise for four.
    assert.equal(await cf.reserve("fixed", 4, { EXPANSION: 0 }), "OK");
    const five = await cf.insert("fixed", ["a", "a", "a", "a", "a"]);
    const room = five.indexOf(false);
    assert.ok(room === 2 || room === 4, `${five}`);
    assert.deepEqual(five, [0, 1, 2, 3, 4].map((index) => index < room));
    assert.equal(await cf.count("fixed", "a"), 4);
    await assert.rejects(cf.add("fixed", "a"), { message: "Filter is full" });
    await assert.rejects(cf.reserve("fixed", 10), { message: "ERR item exists" });
    // Whichever buckets these items have, the filter is full at the end, so at least one of the answers is `full`.
    const many = await cf.insertNX("fixed", ["a", ...items.slice(0, 100)]);
    assert.equal(many[0], there);
    assert.ok(many.includes(full), `${many}`);

    await cf.reserve("source", 4_000_000);
    await cf.insert("source", items);
    await copy(client, "cf");
    assert.deepEqual(await client.sendCommand(["CF.MEXISTS", "target", ...items]), items.map(() => yes));
    assert.deepEqual(await cf.info("target"), await cf.info("source"));

    assert.equal(await client.sendCommand(["CF.COMPACT", "seen"]), "OK");
    assert.equal((await cf.info("seen"))["Number of items deleted"], 0);

    await reserveSeeded("fresh");
    const transaction = client.multi().cf.add("fresh", "a").cf.count("fresh", "a").cf.del("fresh", "a");
    assert.deepEqual(await transaction.exec(), [true, 1, true]);
}

// Dumps the key "source" and loads it as "target". Pieces are binary, but by default, the package would decode them
// as text.
async function copy(client, name) {
    const commands = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer })[name];
    const pieces = [];
    for (let piece = await commands.scanDump("source", 0); piece.iterator !== 0; ) {
        pieces.push(piece);
        piece = await commands.scanDump("source", piece.iterator);
    }
    const bytes = pieces.reduce((sum, { chunk }) => sum + chunk.length, 0);
    assert.ok(pieces.length > 3 && bytes > 3 << 20, `${pieces.length} pieces, ${bytes} bytes`);
    for (const { iterator, chunk } of pieces) {
        assert.equal(await client.exists("target"), 0); // the last piece creates it
        assert.equal((await commands.loadChunk("target", iterator, chunk)).toString(), "OK");
    }
    const [source, target] = await client.sendCommand(["DEBUG", "DIGEST-VALUE", "source", "target"]);
    assert.equal(source, target);
}

async function sketches({ cms, topK, tDigest }) {
    assert.equal(await cms.initByDim("cms", 1000, 5), "OK");
    assert.equal(await cms.initByProb("other", 0.001, 0.01), "OK");
    const pairs = [{ item: "a", incrementBy: 3 }, { item: "b", incrementBy: 4 }];
    assert.deepEqual(await cms.incrBy("cms", pairs), [3, 4]);
    assert.deepEqual(await cms.query("cms", ["a", "b", "c"]), [3, 4, 0]);
    assert.equal(await cms.merge("cms", [{ name: "cms", weight: 2 }]), "OK");
    assert.deepEqual({ ...await cms.info("cms") }, { width: 1000, depth: 5, count: 14 });
    assert.equal((await cms.info("other")).width, 2000);
    await assert.rejects(cms.query("missing", "a"), { message: "CMS: key does not exist" });

    assert.equal(await topK.reserve("top", 2, { width: 50, depth: 4, decay: 0.9 }), "OK");
    assert.deepEqual(await topK.add("top", ["a", "b"]), [null, null]);
    assert.deepEqual(await topK.incrBy("top", { item: "a", incrementBy: 5 }), [null]);
    assert.deepEqual(await topK.query("top", ["a", "c"]), [true, false]);
    assert.deepEqual(await topK.list("top"), ["a", "b"]);
    const counted = (await topK.listWithCount("top")).map(entry => ({ ...entry }));
    assert.deepEqual(counted, [{ item: "a", count: 6 }, { item: "b", count: 1 }]);
    assert.deepEqual({ ...await topK.info("top") }, { k: 2, width: 50, depth: 4, decay: 0.9 });

    assert.equal(await tDigest.create("digest", { COMPRESSION: 100 }), "OK");
    assert.ok(Number.isNaN(await tDigest.min("digest")));
    assert.equal(await tDigest.add("digest", [1, 2, 3]), "OK");
    assert.equal(await tDigest.max("digest"), 3);
    assert.deepEqual(await tDigest.quantile("digest", [0, 0.5, 1]), [1, 2, 3]);
    assert.deepEqual(await tDigest.cdf("digest", [0, 4]), [0, 1]);
    assert.deepEqual(await tDigest.rank("digest", [0, 2]), [-1, 1]);
    assert.deepEqual(await tDigest.byRevRank("digest", [0, 9]), [3, -Infinity]);
    assert.equal(await tDigest.trimmedMean("digest", 0, 1), 2);
    assert.equal(await tDigest.merge("merged", ["digest", "digest"], { OVERRIDE: true }), "OK");
    assert.equal((await tDigest.info("merged")).Observations, 6);
    assert.equal(await tDigest.reset("digest"), "OK");
}

const client = createClient({
    RESP,
    modules,
    socket: { host: "127.0.0.1", port: Number(port), reconnectStrategy: false, socketTimeout: 60_000 },
});
client.on("error", () => {}); // nothing to do, because the commands that wait for a reply are rejected as well
await client.connect();
try {
    // If the connection used a protocol other than PROTOCOL, the answer would have another type.
    assert.equal(await client.sendCommand(["BF.EXISTS", "missing", "a"]), no);
    await { bloom, cuckoo, sketches }[family](client);
} finally {
    client.destroy();
}
console.log("done");
