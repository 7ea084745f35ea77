// A cuckoo filter at one key: an item needs about one byte, and can be deleted.

import { between, checked } from "./checks.js";
import { Filter } from "./filter.js";
import { encode, pieces } from "./items.js";
import { answers } from "./replies.js";
import { CUCKOO } from "./table.js";

/** A cuckoo filter has no room for some items. (For a full Bloom filter, the server's own error is thrown.) */
export class FilterFull extends Error {
    name = "FilterFull";
}

export class Cuckoo extends Filter {
    constructor(client, key) {
        super(client, key, "CF", CUCKOO);
    }

    async reserve(capacity, options = {}) {
        return this._reserve([checked("capacity", capacity, between(1, 2 ** 48))], options);
    }

    async add(item, options) {
        return (await this.addMany([item], options)) === 1;
    }

    async addMany(items, { ifAbsent = false } = {}) {
        let added = 0;
        for await (const piece of pieces(items)) {
            const reply = await this._ask(ifAbsent ? "INSERTNX" : "INSERT", "NOCREATE", "ITEMS", ...piece);
            const some = answers(reply).filter(Boolean).length;
            // If there is no room, CF.INSERT answers -1 in RESP2 and false in RESP3, and CF.INSERTNX answers -1. For an
            // item that is already there, CF.INSERTNX answers 0.
            const full = ifAbsent ? reply.filter((answer) => Number(answer) < 0).length : reply.length - some;
            if (full > 0) {
                const text = `no room for ${full} of ${piece.length} items. Reserve a larger filter, or one that grows`;
                throw new FilterFull(text);
            }
            added += some;
        }
        return added;
    }

    async hasMany(items) {
        const found = [];
        for await (const piece of pieces(items)) {
            const some = answers(await this._ask("MEXISTS", ...piece));
            await this._check(some.includes(true));
            found.push(...some);
        }
        return found;
    }

    async count(item) {
        const count = Number(await this._ask("COUNT", encode(item)));
        await this._check(count);
        return count;
    }

    /** Throws the server's error if nothing was found because the key holds another type: for CF.MEXISTS and CF.COUNT,
     * it contains nothing. CF.INFO is in @cuckoo, so users may run it; TYPE isn't. */
    async _check(found) {
        if (found) return;
        await this._ask("INFO").catch((error) => {
            if (!error.message.includes("not found")) throw error;
        });
    }
}
