// How long frames take while somebody scrolls, zooms and watches a burst, on a large store and a long history. A measurement, not
// a test: times depend on the machine and on what else it does.
//
//   node tests/browser/frames.mjs [INSTANCES] [EVENTS]
//
// Prints for each part how many frames there were, the time between two of them, and how long the browser's main thread computed
// for each of its tasks. The last does not count the time in which other programs had the processor; a task of 50 ms makes
// a frame that takes 50 ms, which is the limit that the dashboard sets itself.
import { Fixture, launch } from "./fixture.mjs";

const [instances = 1_000_000, events = 100_000] = process.argv.slice(2).map(Number);
const SECONDS = 5;

/** Begins to note the times between frames. */
function begin() {
  const gaps = [];
  globalThis.gaps = gaps;
  let last = performance.now();
  const next = (now) => {
    gaps.push(now - last);
    last = now;
    if (globalThis.gaps === gaps) requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
}

/** Ends it. */
function end() {
  const { gaps } = globalThis;
  globalThis.gaps = null;
  return gaps.slice(1);
}

/** The processor's time of each task of the thread that runs the page, in milliseconds. */
function tasksOf(trace) {
  const { traceEvents } = JSON.parse(trace);
  const threads = traceEvents.filter((event) => event.name === "thread_name" && event.args.name === "CrRendererMain");
  const mains = new Set(threads.map((event) => `${event.pid} ${event.tid}`));
  const tasks = traceEvents.filter((event) => event.name === "RunTask" && event.tdur !== undefined);
  return tasks.filter((event) => mains.has(`${event.pid} ${event.tid}`)).map((event) => event.tdur / 1_000);
}

/** The value that a part of the values does not exceed. */
function quantile(values, part) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]?.toFixed(0);
}

async function measure(page, what, act) {
  await browser.startTracing(page, { categories: ["disabled-by-default-devtools.timeline"] });
  await page.evaluate(begin);
  const until = Date.now() + SECONDS * 1_000;
  for (let step = 0; Date.now() < until; step += 1) await act(step);
  const gaps = await page.evaluate(end);
  const tasks = tasksOf((await browser.stopTracing()).toString("utf8"));
  const over = tasks.filter((ms) => ms > 50).length;
  const longest = `the longest task ${quantile(tasks, 1)} ms, ${over} of ${tasks.length} over 50 ms`;
  const apart = [0.5, 0.95, 0.99].map((part) => `p${part * 100} ${quantile(gaps, part)} ms`).join(", ");
  console.log(`${what}: ${gaps.length} frames, ${apart} apart; ${longest}`);
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function open(page, fixture, place, ready) {
  await page.goto("about:blank");
  await page.goto(`${fixture.url}#/${place}`);
  await page.locator(ready).first().waitFor({ timeout: 60_000 });
  await pause(1_000);
}

const browser = await launch();
const page = await browser.newPage({ viewport: { width: 1440, height: 900 } });

const wide = await Fixture.start("--instances", instances);
await open(page, wide, "instances?order=oldest", ".instances-row .id");
await page.mouse.move(700, 600);
const scroll = (by) => async () => {
  await page.mouse.wheel(0, by);
  await pause(16);
};
await measure(page, `list of ${instances.toLocaleString("en")} instances, scrolled`, scroll(400));
await open(page, wide, "instances", ".instances-row .id");
await wide.run("start-many", 200, "hello", "warm-", "somebody");
let round = 0;
await measure(page, "list while instances start, 200 at a time", async () => {
  await wide.run("start-many", 200, "hello", `burst-${(round += 1)}-`, "somebody");
});
await wide.stop();

const long = await Fixture.start("--events", events);
await open(page, long, "instances/long?tab=history", "[data-event]");
await page.mouse.move(700, 700);
await measure(page, `history of ${events.toLocaleString("en")} events, scrolled up`, scroll(-400));
await open(page, long, "instances/long", ".tl-bar");
await page.mouse.move(700, 800);
await measure(page, "timeline scrolled", scroll(300));
const axis = await page.locator(".tl-axis").boundingBox();
await page.mouse.move(axis.x + axis.width / 3, axis.y + axis.height / 2);
await measure(page, "timeline zoomed in and out", async (step) => {
  await page.mouse.wheel(0, step % 40 < 20 ? -120 : 120);
  await pause(16);
});
// As many turns a second as the store takes, several instances at once, the page shows one of them.
for (const place of ["history", "timeline"]) {
  await long.run("start", "steps", `quick-${place}`, [30_000, 0]);
  await open(page, long, `instances/quick-${place}?tab=${place}`, place === "history" ? "[data-event]" : ".tl-bar");
  const before = (await long.get(`instances/quick-${place}`)).turns;
  const began = Date.now();
  await measure(page, `${place} while its instance takes turns`, () => pause(100));
  const after = (await long.get(`instances/quick-${place}`)).turns;
  console.log(`  ${Math.round(((after - before) * 1_000) / (Date.now() - began))} turns a second`);
}
await long.stop();
await browser.close();
