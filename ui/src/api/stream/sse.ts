// Reads `text/event-stream` from a response. `EventSource` would do this too, but tells neither the status of a refusal nor
// comments, and waits the same time after every failure.

export interface ServerEvent {
  event: string;
  id: string | null;
  data: string;
}

/** Calls `on` for every message and `heard` whenever anything arrives, until the response ends. */
export async function readEvents(
  body: ReadableStream<Uint8Array>,
  on: (event: ServerEvent) => void,
  heard: () => void,
): Promise<void> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    heard();
    rest += value;
    // The server ends lines with a line feed alone, and messages with two.
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const event = parse(rest.slice(0, end));
      rest = rest.slice(end + 2);
      if (event !== null) on(event);
    }
  }
}

function parse(block: string): ServerEvent | null {
  let [event, id, data]: [string, string | null, string | null] = ["message", null, null];
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const name = line.slice(0, colon);
    const value = line.slice(line.charAt(colon + 1) === " " ? colon + 2 : colon + 1);
    if (name === "event") event = value;
    else if (name === "id") id = value;
    else if (name === "data") data = data === null ? value : `${data}\n${value}`;
  }
  return data === null ? null : { event, id, data };
}
