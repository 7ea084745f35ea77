// npm install @valkey/valkey-glide
import { Decoder, GlideClient } from '@valkey/valkey-glide';

// The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian).
const items = (...texts) => Buffer.concat(texts.map(Buffer.from).flatMap((item) => {
  const length = Buffer.alloc(4);
  length.writeUInt32LE(item.length);
  return [length, item];
}));

const client = await GlideClient.createClient({ addresses: [{ host: '127.0.0.1', port: Number(process.argv[2]) }] });
await client.customCommand(['BF.RESERVE', 'users', '0.001', '1000']);
const isNew = await client.customCommand(['BF.ADD', 'users', 'ada']);
const more = await client.customCommand(['BF.BULKADD', 'users', 'PREFIXED', items('ada', 'grace')]);
const bits = await client.customCommand(
  ['BF.BULKTEST', 'users', 'PREFIXED', items('ada', 'barbara')], { decoder: Decoder.Bytes });
const stats = await client.customCommand(['BF.STATS', 'users']); // a list of { key, value }
const count = stats.find((field) => field.key === 'Number of items inserted').value;
console.log(Number(isNew), more, bits.toString('hex'), count);
client.close();
