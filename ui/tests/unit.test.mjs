// Runs the tests of `tests/unit`, which are TypeScript and need no browser, under Node's test runner.
import { readdir } from "node:fs/promises";
import { createServer } from "vite";

// What modules of the pages touch when they are loaded.
globalThis.addEventListener ??= () => {};
globalThis.document ??= { visibilityState: "hidden", baseURI: "http://localhost/" };
const { setInterval: every } = globalThis;
globalThis.setInterval = (...call) => every(...call).unref();

const root = new URL("..", import.meta.url).pathname;
const server = await createServer({ root, appType: "custom", logLevel: "error", server: { middlewareMode: true, ws: false } });
for (const file of (await readdir(`${root}tests/unit`)).sort()) await server.ssrLoadModule(`/tests/unit/${file}`);
await server.close();
