// Bloom and cuckoo filters of Bloomery, the module for Redis and Valkey. index.d.ts describes the classes.

export { Bloom } from "./bloom.js";
export { Cuckoo, FilterFull } from "./cuckoo.js";
