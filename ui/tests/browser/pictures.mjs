// The pictures of the guide and the README: an order of `perennial demo --serve`, and blocked instances of the fixture.
//
//   cargo build -p perennial-cli && cargo build -p perennial-server --example dashboard_fixture
//   node tests/browser/pictures.mjs
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

import { Fixture, launch } from "./fixture.mjs";

const docs = new URL("../../../docs/src/", import.meta.url).pathname;
const command = process.env.PERENNIAL_TEST_COMMAND ?? new URL("../../../target/debug/perennial", import.meta.url).pathname;

/** Looks again until something is found. */
async function found(look) {
  for (;;) {
    const answer = await look();
    if (answer !== undefined) return answer;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

const browser = await launch();

async function picture(url, height, act, name) {
  const context = await browser.newContext({ viewport: { width: 1440, height }, colorScheme: "light", reducedMotion: "reduce" });
  const page = await context.newPage();
  await page.goto(url);
  await act(page);
  // The pointer lights nothing, and what was marked as changed is marked no longer.
  await page.mouse.move(0, 0);
  await page.waitForTimeout(1_500);
  await page.screenshot({ path: join(docs, name) });
  await context.close();
  console.log(name);
}

const directory = await mkdtemp(join(tmpdir(), "perennial-pictures-"));
const demo = spawn(command, ["demo", "--serve", "--listen", "127.0.0.1:0"], {
  cwd: directory,
  stdio: ["ignore", "pipe", "inherit"],
});
const url = await new Promise((resolve) => createInterface({ input: demo.stdout }).on("line", (line) => resolve(line.trim())));
const read = async (path) => (await fetch(new URL(`api/v1/${path}`, url))).json();
// An order whose charge was retried, which waited for an approval, and was shipped.
const id = await found(async () => {
  const { rows } = await read("instances?name=order&status=completed&limit=200");
  for (const row of rows ?? []) {
    const { operations } = await read(`instances/${row.id}/timeline`);
    const has = (kind) => operations.some((operation) => operation.kind === kind && operation.outcome === "completed");
    const isRetried = operations.some((operation) => operation.attempts.some((attempt) => attempt.error !== undefined));
    if (isRetried && has("event") && has("child")) return row.id;
  }
});
const unfold = async (page) => {
  await page.getByRole("button", { name: /^Operations of child/ }).click();
  await page.getByText("hand_over").first().waitFor();
};
await picture(`${url}#/instances/${id}`, 780, unfold, "dashboard.png");
demo.kill("SIGINT");
await new Promise((resolve) => demo.once("exit", resolve));
await rm(directory, { recursive: true });

const fixture = await Fixture.start();
const open = (page) => page.getByRole("button", { name: /invoice/ }).click();
await picture(`${fixture.url}#/blocked`, 760, open, "dashboard-blocked.png");
await fixture.stop();
await browser.close();
