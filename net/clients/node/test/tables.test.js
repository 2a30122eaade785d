// VERBS.md and the documents of this package, held against the client.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';

import * as penstock from '../src/index.js';
import { OPTIONS } from '../src/client.js';
import { clientOptions } from '../src/options.js';

const read = (path) => readFileSync(new URL(path, import.meta.url), 'utf8');
const verbs = read('../../VERBS.md');
const types = read('../src/index.d.ts');
const readme = read('../README.md');
const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
const words = (cell) => [...cell.matchAll(/`([A-Za-z_]+)`/g)].map(([, word]) => camel(word));

/** The rows of the table behind a heading, as cells. */
function rows(heading) {
  const section = verbs.split(`## ${heading}\n`)[1].split('\n## ')[0];
  return section.split('\n').filter((line) => line.startsWith('|')).slice(2)
    .map((line) => line.split('|').slice(1, -1).map((cell) => cell.trim()));
}

/** What this client has in another way: README.md, *Named otherwise*. */
const OTHERWISE = new Set(['pipeline']);
const BESIDES = new Set(['programs', 'constructor']);

describe('VERBS.md', () => {
  test('each verb is a method with these options, and no method is missing there', () => {
    const methods = new Set(Object.getOwnPropertyNames(penstock.Client.prototype));
    const named = new Set();
    for (const [verb, , options] of rows('Verbs')) {
      const [name] = words(verb);
      named.add(name);
      if (OTHERWISE.has(name)) continue;
      assert.ok(methods.has(name), name);
      if (!OPTIONS[name]) continue;
      const common = new Set(['level', 'deadline', 'signal', 'token']);
      const taken = [...OPTIONS[name]].filter((option) => !common.has(option));
      assert.deepEqual(taken.sort(), words(options).sort(), name);
    }
    for (const name of methods) assert.ok(named.has(name) || BESIDES.has(name), name);
    for (const name of Object.keys(OPTIONS)) assert.ok(named.has(name), name);
  });

  test('each error is a class, and no class is missing there', () => {
    const listed = new Set(rows('Errors').map(([error]) => words(error)[0]));
    const classes = Object.entries(penstock)
      .filter(([, one]) => one.prototype instanceof penstock.PenstockError)
      .map(([name]) => name);
    assert.deepEqual(classes.sort(), [...listed].sort());
  });

  test('each option of a client is there', () => {
    const options = clientOptions();
    for (const [option] of rows('Options of a client')) {
      const [name] = words(option);
      if (name !== 'addresses') assert.ok(Object.hasOwn(options, name), name);
    }
    assert.deepEqual([options.level, options.deadline, options.silenceMax], ['disk', 5000, 400]);
    assert.deepEqual([options.tokens, options.retries, options.shardPorts], [true, true, true]);
  });
});

describe('documents', () => {
  test('each public name stands in the types with its description', () => {
    for (const [name, one] of Object.entries(penstock)) {
      const declared = new RegExp(`^export (?:class|function|const) ${name}\\b`, 'm');
      assert.match(types, declared, name);
      if (typeof one !== 'function' || !one.prototype) continue;
      const body = types.split(new RegExp(`export class ${name}\\b`))[1]?.split('\n}')[0] ?? '';
      const members = Object.getOwnPropertyNames(one.prototype)
        .filter((member) => !['constructor', 'encode', 'decode', 'write', 'numberTypes', 'salted']
          .includes(member));
      for (const member of members) {
        assert.match(body, new RegExp(`\\b${member}\\b`), `${name}.${member}`);
      }
    }
  });

  test('each export of the types has a line of description in front', () => {
    const lines = types.split('\n');
    lines.forEach((line, at) => {
      if (line.startsWith('export ')) assert.match(lines[at - 1], /\*\/$/, line);
    });
  });

  test('each name that the README imports is exported', () => {
    const imports = [...readme.matchAll(/import \{([^}]+)\} from 'penstock'/g)];
    assert.ok(imports.length > 0);
    for (const [, names] of imports) {
      for (const name of names.split(',').map((one) => one.trim()).filter(Boolean)) {
        assert.ok(Object.hasOwn(penstock, name), name);
      }
    }
  });
});
