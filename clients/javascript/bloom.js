// A Bloom filter at one key: fixed, scaling, counting, or a window.

import { between, checked, ratio } from "./checks.js";
import { Filter } from "./filter.js";
import { encode, pieces, prefixed } from "./items.js";
import { answers, bits, table } from "./replies.js";
import { BLOOM } from "./table.js";

const capacityFrom = (least) => between(least, 2 ** 48);

export class Bloom extends Filter {
    constructor(client, key) {
        super(client, key, "BF", BLOOM);
    }

    async reserve(errorRate, capacity, options = {}) {
        const size = [checked("errorRate", errorRate, ratio()), checked("capacity", capacity, capacityFrom(0))];
        return this._reserve(size, options);
    }

    // ---- items. Adds use NOCREATE: a filter that expired or was evicted must not come back small and empty. ----

    async add(item) {
        return (await this.addMany([item])) === 1;
    }

    async addMany(items) {
        let added = 0;
        for await (const piece of pieces(items)) {
            added += Number(await this._ask("BULKADD", "NOCREATE", "PREFIXED", prefixed(piece)));
        }
        return added;
    }

    // BF.BULKTEST refuses a key of another type. For BF.EXISTS, it contains nothing.
    async hasMany(items) {
        const found = [];
        for await (const piece of pieces(items)) {
            found.push(...bits(await this._ask("BULKTEST", "PREFIXED", prefixed(piece)), piece.length));
        }
        return found;
    }

    // ---- counting filters, windows ----

    async deleteMany(items) {
        const deleted = [];
        for await (const piece of pieces(items)) deleted.push(...answers(await this._ask("MDEL", ...piece)));
        return deleted;
    }

    async count(item) {
        return Number(await this._ask("COUNT", encode(item)));
    }

    async rotate() {
        await this._ask("ROTATE");
    }

    async age(item) {
        const age = Number(await this._ask("AGE", encode(item)));
        return age < 0 ? null : age;
    }

    // ---- the whole filter ----

    async card() {
        return Number(await this._ask("CARD"));
    }

    async clear() {
        await this._ask("CLEAR");
    }

    async rebuild(items, { capacity, errorRate, ...options } = {}) {
        const size = [];
        if (capacity !== undefined) size.push("CAPACITY", checked("capacity", capacity, capacityFrom(1)));
        if (errorRate !== undefined) size.push("ERROR", checked("errorRate", errorRate, ratio()));
        const words = this._words(options);
        const all = pieces(items);
        await this._ask("REBUILD", "BEGIN", ...size, ...words); // before the first item is read, so that no add is lost
        const running = async () => table(await this._ask("REBUILD", "STATUS")).identity;
        const own = await running();
        const send = async (...command) => {
            const now = await running();
            // Another client may have ended this rebuild, and begun its own.
            if (now !== undefined && now !== own) throw new Error("another rebuild of the filter has begun");
            await this._ask("REBUILD", ...command);
        };
        try {
            for await (const piece of all) await send("ADD", ...piece);
            await send("COMMIT");
        } catch (error) {
            await send("ABORT").catch(() => {}); // it may have ended already; `error` says why
            throw error;
        }
    }
}
