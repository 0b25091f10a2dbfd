// A store that is empty at first.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { promisify } from "node:util";

import { Fixture, browse, example, open, rowOf } from "./harness.mjs";

const directory = await mkdtemp(join(tmpdir(), "perennial-empty-"));
after(() => rm(directory, { recursive: true }));

test("f1 d48 an empty store shows a program; run as it stands, its instance appears by itself", async () => {
  const fixture = await Fixture.start("--store", `sqlite:${join(directory, "shop.db")}`, "--empty", "--no-runtime");
  try {
    await browse(fixture, async (page) => {
      await open(page, fixture);
      const shown = page.getByText("use perennial::prelude::*;");
      await shown.waitFor();
      const program = await example("first_program");
      // The page shows the example with the URL of its store.
      const lines = (text) => text.replace(/sqlite:[^"]*/, "sqlite:").trim();
      assert.equal(lines(await shown.textContent()), lines(program.source.replace(/^\/\/!.*\n+/, "")));
      // It is the first example of the guide, on a file instead of in memory.
      const code = (text) => text.replace(/^[ \t]*\/\/.*\n+/gm, "").replace(/"(memory:|sqlite:[^"]*)"/, '""');
      const hello = new URL("../../../crates/perennial/examples/hello.rs", import.meta.url);
      assert.equal(code(program.source), code(await readFile(hello, "utf8")));
      const { stdout } = await promisify(execFile)(program.path, { cwd: directory });
      assert.equal(stdout, "Hello, Ada!\n");
      await rowOf(page, "welcome-1").filter({ hasText: "Completed" }).waitFor();
      assert.equal(await shown.count(), 0);
    });
  } finally {
    await fixture.stop();
  }
});
