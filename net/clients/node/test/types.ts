// What TypeScript accepts of this package, and what it refuses. `tsc --noEmit` reads it; nothing
// runs it.

import {
  Apply, type Changed, connect, Field, Layout, No, Unknown, now,
} from '../src/index.js';

export async function sale(): Promise<Changed | null> {
  const client = await connect(['a:7411', 'b:7411'], { deadline: 1000, tls: { ca: 'PEM' } });
  const stock = new Field('u32');
  try {
    const sold = await client.updateIf(
      'stock:42', [stock.atLeast(1).orElse(1), stock.decrease(1)],
      { signal: AbortSignal.timeout(500), level: 'all' },
    );
    const left: number | bigint = sold.numbers[0]!;
    return left === 0 ? null : sold;
  } catch (error) {
    if (error instanceof No && error.reason === 1) return null;
    if (error instanceof Unknown && error.token) return (await error.resolve()) as Changed;
    throw error;
  } finally {
    client.close();
  }
}

export async function names(): Promise<void> {
  const client = await connect('a:7411');
  const programs = await client.programs();
  const ran = await programs.buy!({ stock: 'stock:{1}' }, { quantity: 2 });
  const available: number | bigint | undefined = ran.numbers['stock.available'];
  const apply = new Apply();
  const key = apply.key('stock:{1}');
  apply.do(key.exists(), key.field('u64', 8).becomes(now(1000)), key.expiresIn(10n));
  await client.apply(apply);
  for await (const { key: name, data } of client.scan('stock:', { withValues: true })) {
    Layout.of('Stock', 'available:u32@0').decode(data ?? name);
  }
  // @ts-expect-error: a level has one of five names
  await client.get('a', { level: 'most' });
  // @ts-expect-error: an option that there is not
  await client.set('a', 'b', { ifMissing: true });
  // @ts-expect-error: connect makes clients
  new (await import('../src/index.js')).Client('a:7411');
  void available;
}
