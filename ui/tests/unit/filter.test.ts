// Filters as people type them, and as the URL and the API take them.
import assert from "node:assert/strict";
import { test } from "node:test";

import { adding, filterOf, fromQuery, queryOf, readLength, readTyped, without } from "../../src/pages/instances/filter.ts";

const NOW = 1_800_000_000_000;

test("d9_what_is_typed_becomes_a_filter", () => {
  const read = (text: string) => readTyped(text, NOW);
  assert.deepEqual(read("status:failed"), ["status", "failed"]);
  assert.deepEqual(read("orchestration: order"), ["name", "order"]);
  assert.deepEqual(read("attr.region=eu"), ["attr.region", '"eu"']);
  assert.deepEqual(read("attr.cents:9007199254740993"), ["attr.cents", "9007199254740993"]);
  assert.deepEqual(read("older:2h"), ["min_age_ms", "7200000"]);
  assert.deepEqual(read("created_from_ms:1h"), ["created_from_ms", String(NOW - 3_600_000)]);
  assert.deepEqual(read("blocked"), ["blocked", "true"]);
  assert.deepEqual(read("order-77"), ["id_prefix", "order-77"]);
  assert.deepEqual(read("https://example.com"), ["id_prefix", "https://example.com"]);
  assert.equal(read("older:soon"), null);
  assert.equal(read("  "), null);
});

test("d3_a_filter_survives_the_way_through_a_link", () => {
  const filter = new Map([
    ["name", "a&b=c#d"],
    ["attr.x y", '{"k":[1,"ü"]}'],
    ["status", "failed,running"],
  ]);
  const text = queryOf(filter, "oldest");
  assert.deepEqual([...fromQuery(text).filter].sort(), [...filter].sort());
  assert.equal(fromQuery(text).order, "oldest");
  assert.equal(queryOf(new Map([...filter].reverse()), "oldest"), text);
});

test("d9_values_of_a_list_gather_and_others_replace", () => {
  const one = adding(new Map(), "status", "failed");
  assert.equal(adding(adding(one, "status", "running"), "status", "failed").get("status"), "failed,running");
  assert.equal(adding(new Map([["id_prefix", "a"]]), "id_prefix", "b").get("id_prefix"), "b");
  assert.equal(without(one, "status").size, 0);
});

test("d9_parameters_of_the_page_are_no_filters", () => {
  const params = new Map([
    ["status", "failed"],
    ["start", "new"],
    ["order", "oldest"],
    ["attr.a", "1"],
  ]);
  assert.deepEqual([...filterOf({ path: ["instances"], params }).keys()], ["status", "attr.a"]);
});

test("d9_lengths_are_read_in_every_unit", () => {
  assert.deepEqual(["250", "250ms", "1.5s", "2 m", "1h", "7d", "x", "-1s"].map(readLength), [
    250,
    250,
    1_500,
    120_000,
    3_600_000,
    604_800_000,
    null,
    null,
  ]);
});
