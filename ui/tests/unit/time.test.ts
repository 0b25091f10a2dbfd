// Times and durations as they are shown.
import assert from "node:assert/strict";
import { test } from "node:test";

import { durationText, relativeText, wholeText } from "../../src/design/time.tsx";

test("d5_durations_read_in_the_unit_that_fits", () => {
  const texts = [0, 340, 2_400, 42_900, 200_000, 3_600_000, 18_720_000, 273_600_000, 9_000_000_000].map(durationText);
  assert.deepEqual(texts, ["0 ms", "340 ms", "2.4 s", "42 s", "3 m 20 s", "1 h", "5 h 12 m", "3 d 4 h", "104 d"]);
});

test("d5_relative_times_say_before_and_after", () => {
  const now = 1_800_000_000_000;
  assert.deepEqual(
    [-40_000, 400, 12_000, 7_200_000, 400_000_000].map((ago) => relativeText(now - ago, now)),
    ["in 40 s", "now", "12 s ago", "2 h ago", "4 d ago"],
  );
});

test("d5_what_moves_moves_by_whole_seconds", () => {
  assert.deepEqual([-5, 999, 7_900, 61_000].map(wholeText), ["0 s", "0 s", "7 s", "1 m 1 s"]);
});
