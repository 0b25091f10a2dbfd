// What the pages about trouble and running conclude from answers.
import assert from "node:assert/strict";
import { test } from "node:test";

import type { Cause, FullNode, Version } from "../../src/api/ops.ts";
import { blocksOf } from "../../src/design/Rich.tsx";
import { niceTop } from "../../src/design/scale.ts";
import { causeId, headline, panicOf, placeOf, wordDiff } from "../../src/pages/blocked/cause.ts";
import { readReport, withoutCode } from "../../src/pages/deploy/report.ts";
import { compareVersions, verdictOf } from "../../src/pages/deploy/verdict.ts";
import { odditiesOf } from "../../src/pages/nodes/oddities.ts";
import { rangesText } from "../../src/pages/nodes/ranges.ts";
import { reasonsOf } from "../../src/pages/operations/reasons.ts";

const cause = (more: Partial<Cause>): Cause => ({
  code: "PER-0203",
  cause: "nondeterminism",
  name: "order",
  version: "1.0.0",
  count: 1,
  first_ms: 0,
  last_ms: 0,
  attempts: 1,
  reason: "",
  report: "",
  remedy: "",
  samples: [],
  filter: "",
  ...more,
});

test("d34_another_line_or_difference_is_another_cause", () => {
  const one = cause({ location: "src/a.rs:1:1" });
  assert.equal(causeId(one), causeId({ ...one, count: 7, last_ms: 9, report: "newer" }));
  assert.notEqual(causeId(one), causeId({ ...one, location: "src/a.rs:2:1" }));
  assert.notEqual(causeId(one), causeId({ ...one, cause: "other" }));
  assert.notEqual(causeId(cause({ name: "ab", version: "c" })), causeId(cause({ name: "a", version: "bc" })));
});

test("d33_a_panic_has_its_message_and_place", () => {
  const found = cause({ code: "PER-0201", reason: "PER-0201 panic in unit root at src/a b.rs:41: no shelf: 7\nsecond line" });
  assert.deepEqual(panicOf(found), { unit: "root", place: "src/a b.rs:41", message: "no shelf: 7\nsecond line" });
  assert.equal(placeOf(found), "src/a b.rs:41");
  assert.equal(headline(found), "no shelf: 7\nsecond line");
  assert.equal(panicOf({ reason: "something else" }), null);
});

test("d33_both_sides_of_a_difference_keep_all_their_words", () => {
  for (const [left, right] of [
    ['A "x" "s"', 'A "y" "s"'],
    ["A", ""],
    ["", "B c"],
    ["a b a", "a a"],
    ["same", "same"],
  ] as const) {
    const diff = wordDiff(left, right);
    assert.equal(diff.before + diff.left + diff.after, left);
    assert.equal(diff.before + diff.right + diff.after, right);
  }
  assert.deepEqual(wordDiff('A "x" "s"', 'A "y" "s"'), { before: "A ", left: '"x"', right: '"y"', after: ' "s"' });
});

test("d33_a_hint_becomes_headings_paragraphs_and_items", () => {
  const hint =
    "If the code was not changed:\nLook for the order of\na HashMap.\nUse BTreeMap.\n" +
    "If the code was changed:\n- a new version, or\n- a patch";
  assert.deepEqual(
    blocksOf(hint).map(({ kind, text }) => `${kind}: ${text}`),
    [
      "heading: If the code was not changed",
      "text: Look for the order of a HashMap.",
      "text: Use BTreeMap.",
      "heading: If the code was changed",
      "item: a new version, or",
      "item: a patch",
    ],
  );
});

test("d38_versions_are_ordered_by_their_numbers", () => {
  const sorted = ["1.10.0", "1.9.0", "2.0.0-beta", "2.0.0", "1.9.0-rc.1", "", "x"].sort(compareVersions);
  assert.deepEqual(
    sorted.filter((each) => /^\d/.test(each)),
    ["1.9.0-rc.1", "1.9.0", "1.10.0", "2.0.0-beta", "2.0.0"],
  );
});

const count = (rows: number) => ({ rows, more: false });
const version = (of: string, more: Partial<Version>): Version => ({
  name: "order",
  version: of,
  nodes: ["n1"],
  open: count(0),
  blocked: count(0),
  started: count(0),
  is_needed: false,
  ...more,
});
const node = (id: string, more: Partial<FullNode> = {}): FullNode => ({
  id,
  name: id,
  host: "h",
  process: 1,
  version: "0.1.0",
  since: 0,
  expires: 12_000,
  is_live: true,
  owns_shards: true,
  lanes: 1,
  shards: 128,
  orchestrations: [["order", "1.0.0"]],
  activities: [],
  tags: [],
  slots: 10,
  ...more,
});

test("d38_only_an_older_version_that_nobody_needs_may_be_removed", () => {
  const live = [node("n1")];
  const [old, current] = [version("1.2.0", {}), version("1.3.0", {})];
  assert.equal(verdictOf(old, [old, current], live).kind, "removable");
  assert.equal(verdictOf(current, [old, current], live).kind, "current", "new starts need the newest");
  assert.equal(verdictOf({ ...old, is_needed: true }, [old, current], live).kind, "needed");
  assert.equal(verdictOf({ ...old, nodes: [], is_needed: true, open: count(3) }, [old, current], live).kind, "missing");
  assert.equal(
    verdictOf(old, [old, { ...current, nodes: [] }], live).kind,
    "current",
    "a newer version that no node has does not replace it",
  );
  assert.equal(verdictOf(current, [current], [...live, node("n2")]).text, "Not on n2");
});

test("d38_a_report_of_any_shape_is_read_or_refused", () => {
  for (const bad of [null, 7, "x", [], {}, { checked: "5" }]) assert.equal(readReport(bad), null);
  const report = readReport({ checked: 5, incompatible: [{ id: "a" }, 7, null], missing: [{ name: "b", instances: 2 }] });
  assert.equal(report?.incompatible.length, 1);
  assert.equal(report === null ? 0 : withoutCode(report), 2);
});

test("d37_what_is_odd_about_a_node_is_said", () => {
  const all = [
    node("a"),
    node("b", { version: "0.2.0" }),
    node("c"),
    node("w", { owns_shards: false, orchestrations: [], shards: 0 }),
  ];
  const texts = (of: FullNode) => odditiesOf(of, all, 10_000).map((each) => each.text);
  assert.deepEqual(texts(all[0] as FullNode), []);
  assert.deepEqual(texts(all[1] as FullNode), ["Perennial 0.2.0"]);
  assert.deepEqual(texts(all[3] as FullNode), [], "a worker owns no shard and needs no orchestration");
  assert.deepEqual(texts(node("d", { orchestrations: [], shards: 0, free_slots: 0, since: 20_000 })), [
    "Clock ahead",
    "Owns no shard",
    "Lacks 1 version",
    "No free slot",
  ]);
  assert.deepEqual(texts(node("e", { is_live: false })), ["Lease expired"]);
  assert.deepEqual(
    odditiesOf({ ...(all[0] as FullNode), expires: 10_100 }, all, 10_000).map((each) => each.text),
    ["Lease short"],
  );
});

test("d37_shards_are_listed_as_ranges", () => {
  assert.equal(rangesText([]), "");
  assert.equal(rangesText([3]), "3");
  assert.equal(rangesText([0, 1, 2, 5, 7, 8]), "0–2, 5, 7–8");
});

test("d39_failures_by_reason_add_up_to_all_that_failed", () => {
  const reasons = reasonsOf({
    failed: 9,
    failures: [{ id: "a", error: "PER-0610 busy" }],
    reasons: [{ code: "PER-0610", text: "busy", count: 5 }],
  });
  assert.deepEqual(reasons, [
    { code: "PER-0610", text: "busy", count: 5, ids: ["a"] },
    { code: "", text: "Other reasons", count: 4, ids: [] },
  ]);
  assert.deepEqual(reasonsOf({ failed: 0, failures: [] }), []);
});

test("d36_the_top_of_an_axis_is_round_and_not_below_the_highest_bar", () => {
  for (const most of [0, 1, 2, 3, 7, 10, 11, 49, 51, 999, 1_001]) {
    const top = niceTop(most);
    assert.ok(top >= most && Number.isInteger(top / 2) === (top !== 5 && top !== 1), `${most} → ${top}`);
  }
});
