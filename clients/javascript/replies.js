// Converts replies. They differ by protocol (RESP2, RESP3), client and settings; strings are always Buffers.

// Numbers that are strings in RESP2. An identity such as 12e4 looks like one, so the type isn't guessed from the text.
// tests/library/statistics.rs compares this list with the server's table.
const FRACTIONS = new Set([
    "errorRate",
    "errorRateNow",
    "fill",
    "fillWhenFull",
    "observedErrorRate",
    "shareFalse",
    "tighteningRatio",
]);

/** 1, true or "1" (ioredis with stringNumbers). */
export const yes = (answer) => Number(answer) === 1;

/** The answers of a command with several items. If the command ended early, for example because the key was deleted
 * meanwhile, the error comes last. */
export function answers(reply) {
    if (reply.at(-1) instanceof Error) throw reply.at(-1);
    return reply.map(yes);
}

/** The answers of BF.BULKTEST. The first item's answer is the highest bit of the first byte. */
export function bits(bitmap, count) {
    return Array.from({ length: count }, (_, place) => ((bitmap[place >> 3] >> (7 - (place & 7))) & 1) === 1);
}

/** A map, which is a flat array in RESP2, as an object. "Error rate now" becomes errorRateNow. */
export function table(reply) {
    const pairs = Array.isArray(reply)
        ? reply.flatMap((name, place) => (place % 2 ? [] : [[name, reply[place + 1]]]))
        : Object.entries(reply);
    return Object.fromEntries(pairs.map(([words, value]) => {
        const name = String(words).toLowerCase().replace(/ (.)/g, (_, letter) => letter.toUpperCase());
        return [name, valueOf(name, value)];
    }));
}

function valueOf(name, value) {
    if (name === "advice") return value.map(String);
    if (name === "layers") return value.map(table);
    if (Buffer.isBuffer(value)) return FRACTIONS.has(name) ? Number(value) : String(value);
    if (typeof value === "string") return Number(value);
    return value !== null && typeof value === "object" ? table(value) : value;
}
