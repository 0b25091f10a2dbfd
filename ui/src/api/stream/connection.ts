// One connection of the hub: up to 20 instances, 5 lists, counts and operations. It comes back after failures with growing
// pauses, and goes on after the last message that it saw for every instance that it still follows.
import { readEvents, type ServerEvent } from "./sse.ts";
import { nameOf, type ConnectionState, type Topic } from "./topics.ts";

export const MAX_INSTANCES = 20;
export const MAX_LISTS = 5;
/** The server sends a comment every 15 s; after this much silence the connection is dead. */
const SILENCE_MS = 40_000;
const PAUSES_MS = [500, 1_000, 2_000, 4_000, 8_000, 15_000, 30_000];
/** Topics that appear together, as those of a page do, are asked for together. */
const GATHERED_MS = 30;

export interface Listener {
  message(topic: string, event: string, data: string): void;
  opened(topic: string, gap: boolean): void;
  state(state: ConnectionState): void;
  heard(): void;
}

export class Connection {
  readonly topics = new Map<string, Topic>();
  private readonly api: string;
  private readonly listener: Listener;
  private controller: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private watchdog: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private awaySince: number | null = null;
  /** The cursor of the last message, and the instances whose places it knows. */
  private cursor: { instances: ReadonlySet<string>; id: string } | null = null;

  constructor(api: string, listener: Listener) {
    this.api = api;
    this.listener = listener;
  }

  hasRoomFor(topic: Topic): boolean {
    const same = [...this.topics.values()].filter((other) => other.kind === topic.kind).length;
    return topic.kind === "instance" ? same < MAX_INSTANCES : topic.kind === "list" ? same < MAX_LISTS : true;
  }

  add(topic: Topic): void {
    this.topics.set(nameOf(topic), topic);
    this.open(GATHERED_MS);
  }

  drop(name: string): void {
    this.topics.delete(name);
    if (this.topics.size === 0) this.close();
    // What nobody follows any more is left out at the next opportunity; it is not worth a connection of its own.
  }

  /** Tries again at once. */
  now(): void {
    if (this.awaySince !== null) this.open(0);
  }

  close(): void {
    clearTimeout(this.timer);
    clearTimeout(this.watchdog);
    this.controller?.abort();
    this.controller = null;
  }

  private open(inMs: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.run(), inMs);
  }

  private async run(): Promise<void> {
    const previous = this.controller;
    const controller = new AbortController();
    this.controller = controller;
    const topics = [...this.topics.values()];
    const instances = topics.flatMap((topic) => (topic.kind === "instance" ? [topic.id] : []));
    const lists = topics.flatMap((topic) => (topic.kind === "list" ? [topic.filter] : []));
    const following = new Set(instances);
    const cursor = this.cursor;
    const query = new URLSearchParams();
    for (const id of instances) query.append("instance", id);
    for (const filter of lists) query.append("list", filter);
    if (this.topics.has("stats")) query.set("stats", "true");
    if (this.topics.has("operations")) query.set("operations", "true");
    // Instances that the cursor does not know begin now; whoever follows them reads what was before.
    if (instances.length > 0) query.set("from", cursor?.id ?? "now");
    if (instances.length > 0 && cursor !== null) query.set("others", "now");
    try {
      const response = await fetch(`${this.api}stream?${query}`, { signal: controller.signal, cache: "no-store" });
      previous?.abort();
      if (!response.ok || response.body === null) return await this.refused(response);
      [this.failures, this.awaySince] = [0, null];
      this.listener.state({ is: "live" });
      for (const topic of topics) {
        this.listener.opened(nameOf(topic), topic.kind !== "instance" || cursor?.instances.has(topic.id) !== true);
      }
      const names = lists.map((filter) => nameOf({ kind: "list", filter }));
      await readEvents(
        response.body,
        (event) => this.received(event, following, names),
        () => this.heard(controller),
      );
      if (this.controller === controller) this.open(100);
    } catch {
      previous?.abort();
      if (this.controller === controller) this.failed(null);
    }
  }

  private received({ event, id, data }: ServerEvent, instances: ReadonlySet<string>, lists: string[]): void {
    if (id !== null) this.cursor = { instances, id };
    if (event === "list" || event === "changes") {
      // `{"list":0,…`: the number counts the lists of this connection.
      const number = Number(/^\{"list":(\d+)/.exec(data)?.[1] ?? -1);
      const name = lists[number];
      if (name !== undefined) this.listener.message(name, event, data);
    } else if (event === "stats" || event === "operations") {
      this.listener.message(event, event, data);
    } else if (event !== "end") {
      const about = JSON.parse(data) as { instance?: string; id?: string };
      this.listener.message(`i:${about.instance ?? about.id ?? ""}`, event, data);
    }
  }

  private heard(controller: AbortController): void {
    if (this.controller !== controller) return;
    this.listener.heard();
    clearTimeout(this.watchdog);
    this.watchdog = setTimeout(() => this.open(0), SILENCE_MS);
  }

  private async refused(response: Response): Promise<void> {
    const body = (await response.json().catch(() => ({}))) as { code?: string; detail?: string };
    // A cursor that is not taken any more must not be sent for ever.
    if (body.code === "PER-0809") this.cursor = null;
    if (response.status >= 500 || response.status === 429 || body.code === "PER-0809") {
      this.failed(body.detail ?? `the server answered ${response.status}`);
    } else {
      this.listener.state({ is: "refused", status: response.status, code: body.code ?? null });
      // A login or a new version of the server can change the answer.
      this.open(PAUSES_MS[PAUSES_MS.length - 1] ?? 0);
    }
  }

  private failed(why: string | null): void {
    clearTimeout(this.watchdog);
    const now = Date.now();
    this.awaySince ??= now;
    const pause = PAUSES_MS[Math.min(this.failures++, PAUSES_MS.length - 1)] ?? 0;
    const jittered = pause * (0.8 + Math.random() * 0.4);
    this.listener.state({ is: "away", since: this.awaySince, retryAt: now + jittered, why });
    this.open(jittered);
  }
}
