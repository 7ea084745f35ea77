// npm install iovalkey
import Valkey from 'iovalkey';

// The argument of BULKADD and BULKTEST: each item, preceded by its length (32 bits, little-endian).
const items = (...texts) => Buffer.concat(texts.map(Buffer.from).flatMap((item) => {
  const length = Buffer.alloc(4);
  length.writeUInt32LE(item.length);
  return [length, item];
}));

const client = new Valkey(Number(process.argv[2]));
await client.call('BF.RESERVE', 'users', 0.001, 1000);
const isNew = await client.call('BF.ADD', 'users', 'ada');
const more = await client.call('BF.BULKADD', 'users', 'PREFIXED', items('ada', 'grace'));
const bits = await client.callBuffer('BF.BULKTEST', 'users', 'PREFIXED', items('ada', 'barbara'));
const stats = await client.call('BF.STATS', 'users'); // alternating names and values
const count = stats[stats.indexOf('Number of items inserted') + 1];
console.log(isNew, more, bits.toString('hex'), count);
client.disconnect();
