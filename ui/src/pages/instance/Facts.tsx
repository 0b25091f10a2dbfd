// What the instance is: orchestration, execution, times, parent, attributes, published status, input and result.
import type { ComponentChildren, JSX } from "preact";

import type { InstanceDetails } from "../../api/types.ts";
import { countText } from "../../design/Controls.tsx";
import { CopyButton } from "../../design/Copy.tsx";
import { Id, Text } from "../../design/Id.tsx";
import { Menu, MenuItem } from "../../design/Menu.tsx";
import { Waiting } from "../../design/Problem.tsx";
import { Icon } from "../../design/icons.tsx";
import { Duration, Time } from "../../design/time.tsx";
import { useLoad } from "../../api/load.ts";
import { logsHref, traceHref } from "../../frame/source.tsx";
import { href, param } from "../../router/router.ts";
import { read, type ExecutionRow } from "./data.ts";
import type { InstanceModel } from "./model.ts";
import { PayloadLine, eventHref, previewOf } from "./parts.tsx";

function Fact({ name, children }: { name: string; children: ComponentChildren }): JSX.Element {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

export function Facts({ model, details }: { model: InstanceModel; details: InstanceDetails }): JSX.Element {
  const trace = /^[0-9a-f]{2}-([0-9a-f]{32})-/.exec(details.trace?.parent ?? "")?.[1];
  const attributes = Object.entries(details.attributes);
  const [first, last] = [1, details.events ?? 1].map((event) => eventHref(details.id, event, details.execution)) as [
    string,
    string,
  ];
  return (
    <>
      <dl class="one-facts">
        <Fact name="Orchestration">
          <a href={href(["instances"], { name: details.name })} class="id">
            <Text text={details.name} />
          </a>{" "}
          <span class="muted mono">
            <Text text={details.version} />
          </span>
        </Fact>
        <Fact name="Execution">
          <Executions model={model} details={details} />
        </Fact>
        <Fact name="Started">
          <Time ms={details.created_ms} />
        </Fact>
        {details.ended_ms === null ? (
          <Fact name="Age">
            <Duration since={details.created_ms} />
          </Fact>
        ) : (
          <Fact name="Took">
            <Duration ms={details.ended_ms - details.created_ms} />
          </Fact>
        )}
        {details.deadline_ms !== null && (
          <Fact name="Times out">
            <Time ms={details.deadline_ms} />
          </Fact>
        )}
        {details.turns !== null && <Fact name="Turns">{countText(details.turns)}</Fact>}
        {details.events !== null && <Fact name="Events">{countText(details.events)}</Fact>}
        {details.parent !== null && (
          <Fact name="Parent">
            <Id
              text={details.parent.instance}
              href={href(["instances", details.parent.instance], { event: details.parent.event_id })}
              isClipped
            />
          </Fact>
        )}
        {trace !== undefined && (
          <Fact name="Trace">
            <TraceId id={trace} />
          </Fact>
        )}
        <Fact name="Key">
          <span class="row one-key">
            <span class="mono muted">{details.key.slice(0, 8)}</span>
            <CopyButton text={details.key} label="Copy the key" />
          </span>
        </Fact>
        <TemplateLinks details={details} />
      </dl>
      {attributes.length > 0 && (
        <ul class="one-attributes" aria-label="Attributes">
          {attributes.slice(0, 24).map(([name, value]) => (
            <li key={name}>
              <a
                class="chip plain"
                href={href(["instances"], { [`attr.${name}`]: previewOf(value, 1000) })}
                title="Instances with this attribute"
              >
                <span class="muted">
                  <Text text={name} />
                </span>{" "}
                <span class="clip">
                  <Text text={previewOf(value, 60)} />
                </span>
              </a>
            </li>
          ))}
          {attributes.length > 24 && <li class="muted">and {attributes.length - 24} more</li>}
        </ul>
      )}
      <div class="one-payloads">
        {details.published !== null && (
          <PayloadLine
            label="Published status"
            value={details.published}
            at={href(["instances", details.id], { tab: "state" })}
          />
        )}
        {!model.isPartial.value && <PayloadLine label="Input" value={details.input} at={first} />}
        {details.output !== null && <PayloadLine label="Result" value={details.output} at={last} />}
        {details.error !== null && <PayloadLine label="Error" value={details.error} at={last} tone="red" />}
      </div>
    </>
  );
}

function TraceId({ id }: { id: string }): JSX.Element {
  const link = traceHref(id);
  const shown = <span class="mono">{id.slice(0, 8)}</span>;
  return (
    <span class="row one-key">
      {link === null ? (
        shown
      ) : (
        <a class="link" href={link} target="_blank" rel="noreferrer">
          {shown}
        </a>
      )}
      <CopyButton text={id} label="Copy the trace id" />
    </span>
  );
}

function TemplateLinks({ details }: { details: InstanceDetails }): JSX.Element | null {
  const logs = logsHref(details);
  if (logs === null) return null;
  return (
    <Fact name="Logs">
      <a class="link" href={logs} target="_blank" rel="noreferrer">
        open
      </a>
    </Fact>
  );
}

/** Which execution is shown, of how many; earlier ones are a click away. */
function Executions({ model, details }: { model: InstanceModel; details: InstanceDetails }): JSX.Element {
  const shown = Number(param("execution") ?? details.execution);
  if (details.execution === 1) return <>1</>;
  return (
    <Menu
      button={
        <>
          {countText(shown)} of {countText(details.execution)} <Icon name="chevronDown" size={12} />
        </>
      }
      buttonClass="one-execution"
      label="Choose an execution"
    >
      {() => <ExecutionList model={model} shown={shown} />}
    </Menu>
  );
}

function ExecutionList({ model, shown }: { model: InstanceModel; shown: number }): JSX.Element {
  const list = useLoad(
    (signal) => read<{ rows: ExecutionRow[] }>("instances/{id}/executions", [model.id], { ...model.bound, limit: 50 }, signal),
    [],
  );
  const rows = list.value.value?.rows;
  if (rows === undefined) return <Waiting />;
  return (
    <>
      {rows.map((row) => (
        <MenuItem
          key={row.execution}
          isChecked={row.execution === shown}
          href={href(["instances", model.id], { tab: param("tab"), execution: row.is_current ? null : row.execution })}
        >
          <span>
            {row.execution}
            {row.is_current ? " (current)" : ""}
          </span>
          <span class="push">
            {row.turns} turns
            {row.began_ms !== undefined && row.last_ms !== undefined && (
              <>
                , <Duration ms={row.last_ms - row.began_ms} />
              </>
            )}
          </span>
        </MenuItem>
      ))}
    </>
  );
}
