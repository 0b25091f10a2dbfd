// The processes that work on the store, what is odd about them, and who owns which shard.
import type { JSX } from "preact";

import { get } from "../../api/client.ts";
import { useLoad } from "../../api/load.ts";
import type { FullNode } from "../../api/ops.ts";
import { useRowKeys } from "../../design/Fold.tsx";
import { Holding, useHeld } from "../../design/hold.tsx";
import { Empty, Part, Waiting } from "../../design/Problem.tsx";
import { durationText } from "../../design/time.tsx";
import { Page } from "../../frame/Page.tsx";
import { useRefresh } from "../../frame/refresh.ts";
import { stats } from "../../frame/state.ts";
import { param } from "../../router/router.ts";
import { NodeRow } from "./NodeRow.tsx";
import { ShardMap } from "./ShardMap.tsx";
import "./nodes.css";

export default function NodesPage(): JSX.Element {
  const nodes = useLoad((signal) => get("nodes", { signal }), []);
  const shards = useLoad((signal) => get("shards", { signal }), []);
  useRefresh([nodes, shards], { afterMs: 3_000, everyMs: 3_000 });
  useRowKeys();
  const list = nodes.value.value?.nodes ?? [];
  const live = list.filter((node) => node.is_live).length;
  const lag = stats.value?.lag_ms;
  return (
    <Page
      title="Nodes"
      beside={
        list.length > 0 && (
          <span class="muted">
            {live} live{lag !== undefined && ` · lag ${lag === 0 ? "0 s" : durationText(lag)}`}
          </span>
        )
      }
    >
      <Part of={nodes}>
        {(value) => (value.nodes.length === 0 ? <Nothing /> : <List nodes={value.nodes} at={value.at_ms} />)}
      </Part>
      <Part of={shards} waiting={<Waiting />}>
        {(value) => <ShardMap shards={value.shards} nodes={list} />}
      </Part>
    </Page>
  );
}

function Nothing(): JSX.Element {
  return (
    <Empty title="No node works on this store now">
      <p>
        A node is a process that runs a runtime on this store: your program after <code>Runtime::start</code>, or a worker that
        only runs activities. Each would stand here with its lease, its shards, and what it has registered.
      </p>
    </Empty>
  );
}

function List({ nodes, at }: { nodes: readonly FullNode[]; at: number }): JSX.Element {
  const opened = param("node");
  // Stable by itself: the order of names does not change with the numbers.
  const sorted = [...nodes].sort(
    (a, b) => Number(b.is_live) - Number(a.is_live) || a.name.localeCompare(b.name) || a.id.localeCompare(b.id),
  );
  const held = useHeld(sorted, (node) => node.id, opened !== null);
  return (
    <Holding of={held} one="new node" many="new nodes">
      <ul class="folds">
        {held.rows.map((node) => (
          <NodeRow
            key={node.id}
            node={held.isGone(node) ? { ...node, is_live: false } : node}
            all={nodes}
            at={at}
            isOpen={opened === node.id}
          />
        ))}
      </ul>
    </Holding>
  );
}
