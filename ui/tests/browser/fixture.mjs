// The fixture program (a real server on a real store, driven by commands) and the browser.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";

import { chromium } from "playwright-core";

const FIXTURE =
  process.env.PERENNIAL_TEST_FIXTURE ?? new URL("../../../target/debug/examples/dashboard_fixture", import.meta.url).pathname;
const CHROMIUM = process.env.PERENNIAL_TEST_CHROMIUM ?? "/usr/bin/chromium";

/** A program of the examples beside the fixture, and its source. */
export async function example(name) {
  const source = new URL(`../../../crates/perennial-server/examples/${name}.rs`, import.meta.url);
  return { path: join(dirname(FIXTURE), name), source: await readFile(source, "utf8") };
}

/** A server with a store, driven by commands. */
export class Fixture {
  #process;
  #lines;

  static async start(...options) {
    const fixture = new Fixture();
    fixture.#process = spawn(FIXTURE, options.map(String), { stdio: ["pipe", "pipe", "ignore"] });
    fixture.#lines = createInterface({ input: fixture.#process.stdout })[Symbol.asyncIterator]();
    Object.assign(fixture, await fixture.#answer(`the fixture ${FIXTURE} ${options.join(" ")}`));
    return fixture;
  }

  async #answer(what) {
    const { value, done } = await this.#lines.next();
    if (done) throw new Error(`${what} ended; build it with: cargo build -p perennial-server --example dashboard_fixture`);
    return JSON.parse(value);
  }

  /** Sends a command and waits for its answer. */
  async run(...words) {
    this.#process.stdin.write(`${JSON.stringify(words)}\n`);
    const answer = await this.#answer(words.join(" "));
    assert.equal(answer.ok, true, `${words.join(" ")}: ${answer.error}`);
    return answer;
  }

  /** Reads the API directly, past the page. */
  async get(path, token) {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const response = await fetch(new URL(`api/v1/${path}`, this.url), { headers });
    return response.json();
  }

  async stop() {
    const ended = new Promise((resolve) => this.#process.once("exit", resolve));
    this.#process.stdin.end();
    await ended;
  }
}

/** A browser with an empty profile. */
export function launch() {
  return chromium.launch({
    executablePath: CHROMIUM,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}
