// npm install @redis/client
import { createClient, RESP_TYPES } from '@redis/client';

// The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian).
const items = (...texts) => Buffer.concat(texts.map(Buffer.from).flatMap((item) => {
  const length = Buffer.alloc(4);
  length.writeUInt32LE(item.length);
  return [length, item];
}));

const client = await createClient({ socket: { port: Number(process.argv[2]) } }).connect();
const asBuffer = { typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer } };
await client.sendCommand(['BF.RESERVE', 'users', '0.001', '1000']);
const isNew = await client.sendCommand(['BF.ADD', 'users', 'ada']);
const more = await client.sendCommand(['BF.BULKADD', 'users', 'PREFIXED', items('ada', 'grace')]);
const bits = await client.sendCommand(['BF.BULKTEST', 'users', 'PREFIXED', items('ada', 'barbara')], asBuffer);
const stats = await client.sendCommand(['BF.STATS', 'users']);
const count = Array.isArray(stats) // RESP2: alternating names and values
  ? stats[stats.indexOf('Number of items inserted') + 1] : stats['Number of items inserted'];
console.log(Number(isNew), more, bits.toString('hex'), count);
client.destroy();
