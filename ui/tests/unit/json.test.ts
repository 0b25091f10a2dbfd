// Lossless JSON, which the payload viewer and every answer depend on.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Numeral, readJson, textOf } from "../../src/api/json.ts";
import { foldable, linesOf, pathOf, readTree, search } from "../../src/design/json-tree.ts";

test("d22_numbers_are_kept_digit_for_digit", () => {
  const value = readJson('{"a":9007199254740993,"b":1.0,"c":1e2,"d":42,"e":-0}') as Record<string, unknown>;
  assert.ok(value["a"] instanceof Numeral);
  assert.equal(textOf(value["a"]), "9007199254740993");
  assert.equal(textOf(value["b"]), "1.0");
  assert.equal(textOf(value["c"]), "1e2");
  assert.equal(value["d"], 42);
  assert.equal(textOf(value["e"]), "-0");
});

test("d22_objects_keep_the_order_and_repetition_of_their_keys", () => {
  const text = '{"10":1, "2":2, "2":3}';
  const { payload } = readJson(`{"payload":${text}}`) as { payload: object };
  assert.equal(textOf(payload), text);
});

test("d52_a_key_named_proto_is_a_key", () => {
  const value = readJson('{"__proto__":{"polluted":true}}') as object;
  assert.deepEqual(Object.keys(value), ["__proto__"]);
  assert.equal(({} as { polluted?: boolean }).polluted, undefined);
});

test("d22_what_is_read_equals_what_the_browser_reads", () => {
  const texts = ['""', '"a\\u00e9\\n\\"b"', "[]", "{}", "[1,[2,{}],null,true,false]", ' { "a" : [ 1 , 2 ] } ', "-1.5", '"\\\\"'];
  for (const text of texts) assert.deepEqual(readJson(text), JSON.parse(text), text);
  for (const text of ["", "{", "[1,]", '{"a"}', "01", "nul", '"a', "1 2", "{,}", "\u00a01"]) {
    assert.throws(() => readJson(text), SyntaxError, text);
  }
});

test("d22_a_payload_folds_and_is_searched_and_has_paths", () => {
  const text = '{"items":[{"unit price":9007199254740993},{"name":"Needle"}],"n":null}';
  const root = readTree(text);
  assert.equal(linesOf(root, new Set()).length, 11);
  assert.equal(linesOf(root, new Set(foldable(root, 1))).length, 4);
  const [found] = search(root, text, "needle");
  assert.ok(found);
  assert.equal(pathOf(found), ".items[1].name");
  const [price] = search(root, text, "740993");
  assert.ok(price);
  assert.equal(pathOf(price), '.items[0]."unit price"');
  assert.equal(text.slice(price.start, price.end), "9007199254740993");
});
