// The 256 shards as a map by owner and lag. Each owner has a colour and a letter, a shard that is late a mark; the list beside
// it says the same in words.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

import type { FullNode, Shard } from "../../api/ops.ts";
import { Id } from "../../design/Id.tsx";
import { Since, durationText } from "../../design/time.tsx";
import { rangesText } from "./ranges.ts";

const COLOURS = ["accent", "green", "amber", "violet", "blue", "red"] as const;
/** From here on a shard is late: its due work has waited that long. */
const LATE_MS = 1_000;
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

interface Owner {
  id: string | null;
  name: string;
  letter: string;
  colour: string;
  shards: Shard[];
}

function ownersOf(shards: readonly Shard[], nodes: readonly FullNode[]): Owner[] {
  const names = new Map(nodes.map((node) => [node.id, node.name]));
  const ids = [...new Set(shards.flatMap((shard) => shard.node ?? []))].sort((a, b) =>
    (names.get(a) ?? a).localeCompare(names.get(b) ?? b),
  );
  const owners: Owner[] = ids.map((id, index) => ({
    id,
    name: names.get(id) ?? id.slice(0, 8),
    letter: LETTERS[index % LETTERS.length] ?? "",
    colour: COLOURS[index % COLOURS.length] ?? "accent",
    shards: shards.filter((shard) => shard.node === id),
  }));
  const free = shards.filter((shard) => shard.node === null);
  return free.length === 0 ? owners : [...owners, { id: null, name: "Nobody", letter: "", colour: "none", shards: free }];
}

export function ShardMap({ shards, nodes }: { shards: readonly Shard[]; nodes: readonly FullNode[] }): JSX.Element | null {
  const [lit, setLit] = useState<string | null | undefined>(undefined);
  const [at, setAt] = useState<number | null>(null);
  if (shards.length === 0) return null;
  const owners = ownersOf(shards, nodes);
  const ownerOf = new Map(owners.map((owner) => [owner.id, owner]));
  const pointed = at === null ? undefined : shards[at];
  const summary = owners.map((owner) => `${owner.name} ${owner.shards.length}`).join(", ");
  return (
    <section class="stack">
      <div class="section-head">
        <h2>Shards</h2>
        <p>Each instance lives in one of {shards.length} shards; a shard has one owner at a time.</p>
      </div>
      <div class="card shards">
        <div
          class="shard-map"
          role="img"
          aria-label={`${shards.length} shards by owner: ${summary}`}
          onPointerLeave={() => setAt(null)}
          onPointerMove={(event) => {
            const number = (event.target as HTMLElement).dataset["shard"];
            setAt(number === undefined ? null : Number(number));
          }}
        >
          {shards.map((shard) => {
            const owner = ownerOf.get(shard.node);
            const isDim = lit !== undefined && lit !== shard.node;
            return (
              <span
                key={shard.shard}
                data-shard={shard.shard}
                class={`shard ${owner?.colour ?? "none"} ${isDim ? "dim" : ""} ${shard.lag_ms >= LATE_MS ? "late" : ""}`}
              >
                {owners.length > 1 ? owner?.letter : ""}
              </span>
            );
          })}
        </div>
        <div class="shard-owners">
          <p class="shard-at" aria-hidden="true">
            {pointed === undefined ? (
              <span class="muted">Point at a shard to see its owner and its lag.</span>
            ) : (
              <>
                <b>Shard {pointed.shard}</b>{" "}
                {pointed.node === null ? (
                  <>
                    nobody owns it
                    {pointed.unowned_since_ms !== null && (
                      <>
                        {" "}
                        <Since ms={pointed.unowned_since_ms} />
                      </>
                    )}
                  </>
                ) : (
                  <Id text={ownerOf.get(pointed.node)?.name ?? ""} />
                )}
                {pointed.lag_ms > 0 && <>, its due work waits for {durationText(pointed.lag_ms)}</>}
              </>
            )}
          </p>
          <table class="table">
            <thead>
              <tr>
                <th scope="col">
                  <span class="sr-only">Sign</span>
                </th>
                <th scope="col">Owner</th>
                <th scope="col" class="num">
                  Shards
                </th>
                <th scope="col" class="num">
                  Lag
                </th>
                <th scope="col">Which</th>
              </tr>
            </thead>
            <tbody>
              {owners.map((owner) => (
                <tr key={owner.id} onPointerEnter={() => setLit(owner.id)} onPointerLeave={() => setLit(undefined)}>
                  <td>
                    <span class={`shard ${owner.colour}`}>{owners.length > 1 ? owner.letter : ""}</span>
                  </td>
                  <td>{owner.id === null ? <b class="shard-nobody">Nobody</b> : <Id text={owner.name} />}</td>
                  <td class="num">{owner.shards.length}</td>
                  <td class="num">
                    <Lag of={owner.shards} />
                  </td>
                  <td class="shard-ranges mono">
                    <Ranges text={rangesText(owner.shards.map((shard) => shard.shard))} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {ownerOf.has(null) && (
            <p class="hint bad">Instances in shards that nobody owns do not move until a node takes them over.</p>
          )}
        </div>
      </div>
    </section>
  );
}

/** The longest lag of some shards, and how many are late. */
function Lag({ of }: { of: readonly Shard[] }): JSX.Element {
  const longest = Math.max(...of.map((shard) => shard.lag_ms));
  const late = of.filter((shard) => shard.lag_ms >= LATE_MS).length;
  if (late === 0) return <span class="muted">{longest === 0 ? "none" : durationText(longest)}</span>;
  return (
    <b class="shard-late" title={`${late} of these shards have due work that has waited for a second or longer`}>
      {durationText(longest)}, {late} late
    </b>
  );
}

/** Scattered shards make long lists, which open. */
function Ranges({ text }: { text: string }): JSX.Element {
  if (text.length <= 64) return <>{text}</>;
  return (
    <details>
      <summary>{text.slice(0, text.lastIndexOf(",", 56))}, …</summary>
      {text}
    </details>
  );
}
