// Queued activities: those that no live node can run, with what is missing, and those that only wait for a worker.
import type { JSX } from "preact";

import type { TaskGroup } from "../../api/ops.ts";
import { countText } from "../../design/Controls.tsx";
import { Changing } from "../../design/hold.tsx";
import { Id } from "../../design/Id.tsx";
import { Time } from "../../design/time.tsx";
import { nodes } from "../../frame/state.ts";
import { href } from "../../router/router.ts";

/** Whether a name is registered under it; a name with a star is a pattern. */
function takes(registered: string, name: string): boolean {
  return registered.endsWith("*") ? name.startsWith(registered.slice(0, -1)) : registered === name;
}

function Missing({ group }: { group: TaskGroup }): JSX.Element {
  const live = (nodes.value.value ?? []).filter((node) => node.is_live);
  const having = live.filter((node) => node.activities.some((each) => takes(each, group.name)));
  if (live.length === 0) return <>No runtime or worker is live.</>;
  if (having.length === 0) {
    return (
      <>
        No live node has registered <Id text={group.name} />
        {group.tag !== undefined && (
          <>
            , with tag <Id text={group.tag} />
          </>
        )}
        .
      </>
    );
  }
  if (having.length === 1)
    return (
      <>
        Node <Id text={having[0]?.name ?? ""} /> has registered it, and does not serve tag <Id text={group.tag ?? ""} />.
      </>
    );
  return (
    <>
      {having.length} nodes have registered it; none of them serves tag <Id text={group.tag ?? ""} />.
    </>
  );
}

export function Unrunnable({ groups }: { groups: readonly TaskGroup[] }): JSX.Element {
  return (
    <section class="stack">
      <div class="section-head">
        <h2>No node can run these</h2>
        <p>They wait until a node registers the name and serves the tag.</p>
      </div>
      <Table groups={groups} label="Activities that no node can run" last="What is missing">
        {(group) => <Missing group={group} />}
      </Table>
    </section>
  );
}

export function Queued({ groups }: { groups: readonly TaskGroup[] }): JSX.Element {
  return (
    <section class="stack">
      <div class="section-head">
        <h2>Queued</h2>
        <p>These wait for a free slot.</p>
      </div>
      <Table groups={groups} label="Queued activities" last="Who can run them">
        {(group) => `${group.nodes} live ${group.nodes === 1 ? "node" : "nodes"}`}
      </Table>
    </section>
  );
}

function Table(props: {
  groups: readonly TaskGroup[];
  label: string;
  last: string;
  children: (group: TaskGroup) => JSX.Element | string;
}): JSX.Element {
  return (
    <div class="card table-scroll" tabIndex={0} role="region" aria-label={props.label}>
      <table class="table cards">
        <thead>
          <tr>
            <th scope="col">Activity</th>
            <th scope="col">Tag</th>
            <th scope="col" class="num">
              How many
            </th>
            <th scope="col">Oldest</th>
            <th scope="col">{props.last}</th>
            <th scope="col">
              <span class="sr-only">Instances</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {props.groups.map((group) => (
            <tr key={`${group.name}\u0000${group.tag ?? ""}`}>
              <td class="whole">
                <b class="activity-name">
                  <Id text={group.name} />
                </b>
              </td>
              <td data-label="Tag">{group.tag === undefined ? <span class="muted">–</span> : <Id text={group.tag} />}</td>
              <td class="num" data-label="How many">
                <Changing text={countText(group.count)} />
              </td>
              <td data-label="Oldest">{group.oldest_ms === undefined ? "–" : <Time ms={group.oldest_ms} />}</td>
              <td class="activity-missing whole">{props.children(group)}</td>
              <td class="num whole">
                <a class="link nowrap" data-row href={href(["instances"], { waits_for: `activity:${group.name}` })}>
                  Instances
                </a>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
