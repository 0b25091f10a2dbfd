// A store that is empty at first.
import assert from "node:assert/strict";
import { test } from "node:test";

import { browse, fixtureFor, open, rowOf } from "./harness.mjs";

const empty = fixtureFor("--empty");

test("d48 f1 an empty store shows how to start an instance, which then appears by itself", async () => {
  await browse(empty.fixture, async (page) => {
    await open(page, empty.fixture);
    const shown = page.getByText("use perennial::prelude::*;");
    await shown.waitFor();
    assert.match(await shown.textContent(), /\.start\(welcome, "welcome-1"/);
    await empty.fixture.run("start", "hello", "hello-1", "you");
    await rowOf(page, "hello-1").filter({ hasText: "Hello, you!" }).waitFor();
    assert.equal(await shown.count(), 0);
  });
});
