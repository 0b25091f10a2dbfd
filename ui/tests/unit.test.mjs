// Runs the tests of `tests/unit`, which are TypeScript and need no browser, under Node's test runner.
import { readdir } from "node:fs/promises";
import { after } from "node:test";
import { createServer } from "vite";

const root = new URL("..", import.meta.url).pathname;
const server = await createServer({ root, appType: "custom", logLevel: "error", server: { middlewareMode: true, ws: false } });
after(() => server.close());
for (const file of (await readdir(`${root}tests/unit`)).sort()) await server.ssrLoadModule(`/tests/unit/${file}`);
