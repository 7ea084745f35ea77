// Encodes items as bytes, in the same way for every command, and divides many items into pieces.
//
//     Uint8Array, Buffer         as they are
//     string                     UTF-8
//     integer, bigint            decimal digits: 42 is the item "42", as in redis-cli
//
// Anything else is refused, because it could be written in several ways.

import { types } from "node:util";
import { show } from "./checks.js";

// A command of this size is answered within milliseconds, and its overhead is a thousandth of its cost.
const PIECE_BYTES = 64 * 1024;

// Half of a pair of UTF-16 units. All of these would become the same bytes.
const HALF = /\p{Surrogate}/u;

export function encode(item) {
    if (typeof item === "string") {
        if (HALF.test(item)) throw new TypeError(`a string with half a surrogate pair has no UTF-8: ${show(item)}`);
        return Buffer.from(item);
    }
    // A copy, so that the caller may use the array again. Unlike instanceof, this accepts arrays of other realms.
    if (types.isUint8Array(item)) return Buffer.from(item);
    if (typeof item === "bigint" || Number.isSafeInteger(item)) return Buffer.from(String(item));
    throw new TypeError(`an item is a string, a Uint8Array, a safe integer or a bigint, not ${show(item)}`);
}

/** The items, encoded, in arrays of about 64 KiB. The next item is read only when the previous array has been used. The
 * items' iterator is taken at once, because an interface of node:readline loses lines until then. */
export function pieces(items) {
    if (typeof items === "string" || types.isUint8Array(items)) {
        throw new TypeError(`one item where an iterable of items goes; put it into an array: ${show(items)}`);
    }
    const kind = [Symbol.asyncIterator, Symbol.iterator].find((kind) => typeof items?.[kind] === "function");
    if (!kind) throw new TypeError(`items are an iterable or async iterable, not ${show(items)}`);
    const iterator = items[kind]();
    return cut({ [kind]: () => iterator });
}

async function* cut(items) {
    let [piece, room] = [[], PIECE_BYTES];
    for await (const item of items) {
        piece.push(encode(item));
        room -= piece.at(-1).length + 4;
        if (room <= 0) {
            yield piece;
            [piece, room] = [[], PIECE_BYTES];
        }
    }
    if (piece.length > 0) yield piece;
}

/** The argument of PREFIXED: each item after its length (4 bytes, little-endian). */
export function prefixed(piece) {
    return Buffer.concat(piece.flatMap((item) => {
        const length = Buffer.allocUnsafe(4);
        length.writeUInt32LE(item.length);
        return [length, item];
    }));
}
