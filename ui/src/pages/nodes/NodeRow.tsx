// One node: its head with lease, shards and slots, and what it has registered when it is open.
import type { JSX } from "preact";

import type { FullNode } from "../../api/ops.ts";
import { Fold } from "../../design/Fold.tsx";
import { Id, Text } from "../../design/Id.tsx";
import { Icon } from "../../design/icons.tsx";
import { Time, durationText } from "../../design/time.tsx";
import { change, href } from "../../router/router.ts";
import { lacks, leaseLeft, odditiesOf } from "./oddities.ts";

export function NodeRow({
  node,
  all,
  at,
  isOpen,
}: {
  node: FullNode;
  all: readonly FullNode[];
  at: number;
  isOpen: boolean;
}): JSX.Element {
  const odd = odditiesOf(node, all, at);
  const used = node.free_slots === undefined || node.free_slots === null ? null : node.slots - node.free_slots;
  return (
    <Fold
      isOpen={isOpen}
      class={node.is_live ? "" : "node-gone"}
      onToggle={() => change({ node: isOpen ? null : node.id })}
      title={
        <span class="fold-title">
          <span class="row wrap">
            <b class="node-name">
              <Id text={node.name} />
            </b>
            <span class="muted">{node.owns_shards ? "runtime" : "worker"}</span>
            {odd.map((each) => (
              <span key={each.text} class={`chip ${each.tone}`} title={each.why}>
                <Icon name="warning" size={12} />
                <Text text={each.text} />
              </span>
            ))}
          </span>
          <span class="sub">
            <Text text={node.host} />, process {node.process} · Perennial <Text text={node.version} /> · started{" "}
            <Time ms={node.since} />
          </span>
        </span>
      }
      body={() => <Body node={node} all={all} odd={odd} />}
    >
      <Lease node={node} at={at} />
      <span class="figure node-shards">
        <b>{node.shards}</b>
        <span>
          {node.shards === 1 ? "shard" : "shards"}
          {node.lanes > 1 && ` in ${node.lanes} lanes`}
        </span>
      </span>
      <Used class="node-slots" name="slots" used={used} of={node.slots} />
    </Fold>
  );
}

/** So many of so many in use; only how many there are, if the node does not tell. */
function Used(props: { class: string; name: string; used: number | null; of: number }): JSX.Element {
  const of = props.of.toLocaleString("en");
  return (
    <span class={`figure ${props.class}`}>
      <b>
        {props.used === null ? (
          of
        ) : (
          <>
            {props.used.toLocaleString("en")}
            <span class="muted"> of {of}</span>
          </>
        )}
      </b>
      <span>{props.used === null ? props.name : `${props.name} in use`}</span>
    </span>
  );
}

function Lease({ node, at }: { node: FullNode; at: number }): JSX.Element {
  if (!node.is_live)
    return (
      <span class="figure node-lease">
        <b>–</b>
        <span>
          expired <Time ms={node.expires} form="relative" />
        </span>
      </span>
    );
  const { left, of } = leaseLeft(node, at);
  return (
    <span class="figure node-lease" title="What is left of its lease when this was read; it is renewed all the time">
      <b>{(left / 1_000).toFixed(1)} s</b>
      <span class="progress" aria-hidden="true">
        <span class="done" style={{ width: `${of === 0 ? 0 : (left / of) * 100}%` }} />
      </span>
      <span>lease</span>
    </span>
  );
}

function Body({ node, all, odd }: { node: FullNode; all: readonly FullNode[]; odd: ReturnType<typeof odditiesOf> }): JSX.Element {
  const missing = lacks(node, all);
  return (
    <>
      {odd.length > 0 && (
        <ul class="node-odd">
          {odd.map((each) => (
            <li key={each.text}>
              <b>
                <Text text={each.text} />.
              </b>{" "}
              <Text text={each.why} />
            </li>
          ))}
        </ul>
      )}
      <div class="node-registered">
        <section>
          <h3>
            Orchestrations <span class="count">{node.orchestrations.length}</span>
          </h3>
          {node.orchestrations.length === 0 ? (
            <p class="muted">None: it only runs activities.</p>
          ) : (
            <ul>
              {node.orchestrations.map(([name = "", version = ""]) => (
                <li key={`${name} ${version}`}>
                  <Id text={name} href={href(["instances"], { name })} />{" "}
                  <span class="muted">
                    <Text text={version} />
                  </span>
                </li>
              ))}
              {missing.map((name) => (
                <li key={name} class="node-lacks">
                  <Text text={name} /> <span>not here</span>
                </li>
              ))}
            </ul>
          )}
        </section>
        <section>
          <h3>
            Activities <span class="count">{node.activities.length}</span>
          </h3>
          {node.activities.length === 0 ? (
            <p class="muted">None.</p>
          ) : (
            <ul>
              {node.activities.map((name) => (
                <li key={name}>
                  <Id text={name} />
                </li>
              ))}
            </ul>
          )}
        </section>
        <section>
          <h3>
            Tags <span class="count">{node.tags.length}</span>
          </h3>
          {node.tags.length === 0 ? (
            <p class="muted">None: it runs activities that require no tag.</p>
          ) : (
            <ul>
              {node.tags.map((name) => (
                <li key={name}>
                  <Id text={name} />
                </li>
              ))}
            </ul>
          )}
        </section>
        <section>
          <h3>Now</h3>
          <dl class="node-now">
            <dt>Turn threads</dt>
            <dd>
              {node.busy_turn_threads === null ? "" : `${node.busy_turn_threads.toLocaleString("en")} busy of `}
              {node.turn_threads.toLocaleString("en")}
            </dd>
            <dt>Instances in memory</dt>
            <dd>{node.residents === null ? <Untold /> : node.residents.toLocaleString("en")}</dd>
            <dt>Clock</dt>
            <dd>{node.clock_offset_ms === null ? <Untold /> : clockText(node.clock_offset_ms)}</dd>
            <dt>Session</dt>
            <dd class="mono node-id">{node.id}</dd>
          </dl>
        </section>
      </div>
    </>
  );
}

/** What is known in the node's own process only. */
function Untold(): JSX.Element {
  return <span class="muted">not told</span>;
}

function clockText(offsetMs: number): string {
  if (Math.abs(offsetMs) < 2) return "as the store's";
  return `${durationText(Math.abs(offsetMs))} ${offsetMs > 0 ? "ahead of" : "behind"} the store's`;
}
