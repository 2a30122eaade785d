// ioredis: pipeline() of a thousand commands, an error stands in its place
const assert = require("assert");
const Redis = require("ioredis");

async function main() {
  const shop = new Redis(+process.env.PORT);
  const pipe = shop.pipeline();
  for (let number = 0; number < 1000; number++) pipe.set(`seat:${number}`, number).incr(`seat:${number}`);
  const answers = await pipe.exec();
  assert.equal(answers.length, 2000);
  answers.forEach(([error, answer], at) => {
    assert.equal(error, null);
    assert.equal(answer, at % 2 ? (at + 1) / 2 : "OK");
  });
  const [[wrong], [, right]] = await shop.pipeline().set("name", "ann").incr("name").get("name").exec()
    .then((all) => all.slice(1));
  assert.match(wrong.message, /not an integer/);
  assert.equal(right, "ann");
  shop.disconnect();
}

main();
