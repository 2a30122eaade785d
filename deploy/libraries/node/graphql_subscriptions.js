// graphql-redis-subscriptions: RedisPubSub: a name, a pattern, one that has left
const assert = require("assert");
const { RedisPubSub } = require("graphql-redis-subscriptions");

async function main() {
  const pubsub = new RedisPubSub({ connection: { port: +process.env.PORT } });
  const came = [];
  const both = new Promise((done) => {
    const take = (message) => came.push(message) === 2 && done();
    Promise.all([
      pubsub.subscribe("SOLD", take),
      pubsub.subscribe("STOCK:*", take, { pattern: true }),
    ]).then(async () => {
      await pubsub.publish("SOLD", { units: 1 });
      await pubsub.publish("STOCK:7", { units: 2 });
    });
  });
  await both;
  assert.deepEqual(came.map((message) => message.units).sort(), [1, 2]);
  const iterator = pubsub.asyncIterator("SOLD");
  const next = iterator.next();
  await new Promise((done) => setTimeout(done, 200));
  await pubsub.publish("SOLD", { units: 3 });
  assert.equal((await next).value.units, 3);
  await iterator.return();
  await pubsub.close();
}

main();
