// The one place of a browser that holds streams open, for all tabs: browsers allow six connections to a host over HTTP/1.1.
// It runs in a SharedWorker (`worker.ts`), which lives as long as any tab does, and within the page where there are none.
// Topics that several pages follow are asked for once.
import { Connection, type Listener } from "./connection.ts";
import { nameOf, type ConnectionState, type ToHub, type ToPage, type Topic } from "./topics.ts";

/** More would leave no connection for requests. Topics that find no room are read every few seconds instead. */
const MAX_CONNECTIONS = 3;
const POLLED_MS = 5_000;
/** Browsers slow down the timers of hidden tabs to one a minute; a page that is silent for longer is gone. */
const GONE_MS = 200_000;

interface Page {
  send: (message: ToPage) => void;
  heardAt: number;
  follows: Map<number, string>;
}

interface Followed {
  topic: Topic;
  by: Set<{ page: Page; number: number }>;
  connection: Connection | null;
  isOpen: boolean;
  /** The last whole value, for pages that join later. */
  last: { event: string; data: string } | null;
}

export class Hub {
  private api = "";
  private readonly pages = new Set<Page>();
  private readonly followed = new Map<string, Followed>();
  private readonly connections: Connection[] = [];
  private state: ConnectionState = { is: "connecting" };

  constructor() {
    setInterval(() => this.poll(), POLLED_MS);
  }

  /** A page that the hub talks to. Returns what takes the page's messages. */
  connect(send: (message: ToPage) => void): (message: ToHub) => void {
    const page: Page = { send, heardAt: Date.now(), follows: new Map() };
    return (message) => {
      page.heardAt = Date.now();
      this.pages.add(page);
      switch (message.say) {
        case "hello":
          this.api = message.api;
          page.send({ say: "state", state: this.state });
          break;
        case "follow":
          this.follow(page, message.number, message.topic);
          break;
        case "leave":
          this.leave(page, message.number);
          break;
        case "now":
          for (const connection of this.connections) connection.now();
          break;
        case "bye":
          this.forget(page);
          break;
      }
    };
  }

  private follow(page: Page, number: number, topic: Topic): void {
    const name = nameOf(topic);
    page.follows.set(number, name);
    const known = this.followed.get(name);
    if (known !== undefined) {
      known.by.add({ page, number });
      if (known.isOpen) page.send({ say: "open", number, gap: true });
      if (known.last !== null) page.send({ say: "message", number, ...known.last });
      return;
    }
    const connection = this.connectionFor(topic);
    this.followed.set(name, { topic, by: new Set([{ page, number }]), connection, isOpen: false, last: null });
    connection?.add(topic);
  }

  private connectionFor(topic: Topic): Connection | null {
    const free = this.connections.find((connection) => connection.hasRoomFor(topic));
    if (free !== undefined) return free;
    if (this.connections.length >= MAX_CONNECTIONS) return null;
    const connection = new Connection(this.api, this.listener());
    this.connections.push(connection);
    return connection;
  }

  private leave(page: Page, number: number): void {
    const name = page.follows.get(number);
    if (name === undefined) return;
    page.follows.delete(number);
    const followed = this.followed.get(name);
    if (followed === undefined) return;
    for (const follower of followed.by) {
      if (follower.page === page && follower.number === number) followed.by.delete(follower);
    }
    if (followed.by.size > 0) return;
    this.followed.delete(name);
    followed.connection?.drop(name);
  }

  private forget(page: Page): void {
    for (const number of [...page.follows.keys()]) this.leave(page, number);
    this.pages.delete(page);
  }

  private poll(): void {
    const now = Date.now();
    for (const page of this.pages) if (now - page.heardAt > GONE_MS) this.forget(page);
    for (const followed of this.followed.values()) {
      if (followed.connection !== null) continue;
      // There may be room by now.
      followed.connection = this.connectionFor(followed.topic);
      followed.connection?.add(followed.topic);
      for (const { page, number } of followed.by) page.send({ say: "open", number, gap: true });
    }
  }

  private listener(): Listener {
    return {
      message: (name, event, data) => {
        const followed = this.followed.get(name);
        if (followed === undefined) return;
        if (event === "stats" || event === "operations") followed.last = { event, data };
        for (const { page, number } of followed.by) page.send({ say: "message", number, event, data });
      },
      opened: (name, gap) => {
        const followed = this.followed.get(name);
        if (followed === undefined) return;
        followed.isOpen = true;
        for (const { page, number } of followed.by) page.send({ say: "open", number, gap });
      },
      state: (state) => {
        this.state = state;
        for (const page of this.pages) page.send({ say: "state", state });
      },
      heard: () => {
        for (const page of this.pages) page.send({ say: "heard", at: Date.now() });
      },
    };
  }
}
