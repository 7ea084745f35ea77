// Base of the filters: the client, the key, and what both families share.

import { types } from "node:util";
import { checked } from "./checks.js";
import { encode } from "./items.js";
import { table, yes } from "./replies.js";

// Strings as Buffers and maps as arrays: node-redis 5, and (returnBuffers) 4. The numbers are in its RESP_TYPES.
const UNDECODED = { returnBuffers: true, typeMapping: { 36: Buffer, 37: Array } };

/** A function that sends a command with a client. The command's second word is its key. */
function sender(client) {
    const isIoredis = typeof client?.createBuiltinCommand === "function";
    const answersLater = isIoredis ? client.isPipeline : client?.exec;
    if (typeof client?.sendCommand !== "function" || answersLater || client.getSentinelNode) {
        throw new TypeError(
            "client is a client of node-redis or ioredis, not a pipeline or transaction, and not node-redis's sentinel",
        );
    }
    // Not callBuffer: ioredis loses its command's name when it pipelines it automatically, and the process ends.
    if (isIoredis) return ([name, ...words]) => client.createBuiltinCommand(name).buffer.call(client, words);
    const route = ([, key]) => (client.slots ? [key, undefined] : []); // a cluster of node-redis asks for it
    return (words) => client.sendCommand(...route(words), words, UNDECODED);
}

export class Filter {
    #family;
    #options;
    #send;

    constructor(client, key, family, options) {
        const isKey = (value) => typeof value === "string" || types.isUint8Array(value);
        this.client = client;
        this.key = checked("key", key, [isKey, "a string or a Uint8Array"], TypeError);
        const like = [(value) => value instanceof Filter || isKey(value), "a filter, a string or a Uint8Array"];
        this.#family = family;
        this.#options = { ...options, like };
        this.#send = sender(client);
    }

    /** Sends a command of the filter's family for its key, and returns the reply. */
    _ask(name, ...words) {
        return this.#send([`${this.#family}.${name}`, ...[this.key, ...words].map(argument)]);
    }

    /** Sends RESERVE, and returns this object. */
    async _reserve(size, { existOk = false, ...options }) {
        try {
            await this._ask("RESERVE", ...size, ...this._words(options));
        } catch (error) {
            if (!existOk || !error.message.includes("item exists")) throw error;
        }
        return this;
    }

    /** The options of a call as words of a command. A word that isn't known here is sent, and the server judges it, so
     * that the options of a newer server work. The server decides which options can be combined. */
    _words(options) {
        return Object.entries(options).flatMap(([name, value]) => {
            if (value === undefined || value === null || value === false) return [];
            if (value instanceof Date) value = value.getTime();
            if (Object.hasOwn(this.#options, name)) checked(name, value, this.#options[name]);
            return value === true ? [name.toUpperCase()] : [name.toUpperCase(), value];
        });
    }

    async has(item) {
        return (await this.hasMany([item]))[0];
    }

    async delete(item) {
        return yes(await this._ask("DEL", encode(item)));
    }

    async info() {
        return table(await this._ask("INFO"));
    }

    async stats() {
        return table(await this._ask("STATS"));
    }
}

// node-redis accepts only strings and Buffers as words.
function argument(word) {
    if (word instanceof Filter) return argument(word.key);
    if (typeof word === "number") return String(word);
    return Buffer.isBuffer(word) ? word : encode(word);
}
