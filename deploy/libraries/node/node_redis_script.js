// redis: node-redis: defineScript, EVALSHA with its way back to EVAL
const assert = require("assert");
const { createClient, defineScript } = require("redis");

async function main() {
  const buy = defineScript({
    NUMBER_OF_KEYS: 1,
    SCRIPT: `
      local left = redis.call('DECRBY', KEYS[1], ARGV[1])
      if left >= 0 then return left end
      redis.call('INCRBY', KEYS[1], ARGV[1])
      return redis.error_reply('SOLD OUT')`,
    parseCommand(parser, key, units) {
      parser.pushKey(key);
      parser.push(String(units));
    },
    transformReply: (reply) => reply,
  });
  const url = `redis://127.0.0.1:${process.env.PORT}`;
  const shop = await createClient({ url, scripts: { buy } }).connect();
  await shop.set("units", "5");
  assert.equal(await shop.buy("units", 3), 2);
  await assert.rejects(shop.buy("units", 3), /SOLD OUT/);
  await shop.sendCommand(["SCRIPT", "FLUSH"]);
  assert.equal(await shop.buy("units", 2), 0);
  shop.destroy();
}

main();
