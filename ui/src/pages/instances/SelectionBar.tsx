// What is selected, and what can be done with it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { API, urlOf } from "../../api/client.ts";
import type { Count } from "../../api/types.ts";
import { Button, countText } from "../../design/Controls.tsx";
import { Icon } from "../../design/icons.tsx";
import { Menu, MenuItem } from "../../design/Menu.tsx";
import { OperateDialog, type Plan } from "../../frame/Operate.tsx";
import { whyReadOnly } from "../../frame/state.ts";
import { href } from "../../router/router.ts";
import { MOST_ROWS, VERBS, actOnOne, planFor, planForRows, type Verb } from "./acting.tsx";
import type { Selection } from "./selection.ts";

const FIRST: readonly Verb[] = ["cancel", "terminate", "retry"];
const ALL: readonly Verb[] = [...FIRST, "pause", "resume", "delete"];

export function SelectionBar(props: {
  selection: Selection;
  /** As the API takes it. */
  filter: string;
  count: Count | undefined;
}): JSX.Element | null {
  const { selection, count } = props;
  const [plan, setPlan] = useState<Plan | null>(null);
  if (selection.isEmpty) return null;
  const isAll = selection.isAll.value;
  const only = !isAll && selection.size === 1 ? selection.rows[0] : undefined;
  const act = (verb: Verb) => {
    if (only !== undefined) actOnOne(verb, only, () => selection.clear());
    else setPlan(isAll ? planFor(verb, props.filter) : planForRows(verb, selection.rows));
  };
  const tooMany = !isAll && selection.size > MOST_ROWS ? `Select at most ${countText(MOST_ROWS)} rows, or all.` : null;
  const whyNot = whyReadOnly.value ?? tooMany;
  const canWiden = !isAll && count !== undefined && (count.more || count.rows > selection.size);
  return (
    <div class="selection-bar" role="region" aria-label="Selection">
      <b role="status">
        {isAll && count !== undefined ? `All ${countText(count)} selected` : `${countText(selection.size)} selected`}
      </b>
      {canWiden && (
        <button type="button" class="button quiet small" onClick={() => (selection.isAll.value = true)}>
          Select all {count === undefined ? "" : countText(count)} that the filter shows
        </button>
      )}
      <span class="push" />
      {FIRST.map((verb) => (
        <Button key={verb} kind="small" whyNot={whyNot} onClick={() => act(verb)}>
          {VERBS[verb].title}…
        </Button>
      ))}
      <Menu button={<Icon name="more" />} buttonClass="button small icon all-actions" label="All actions">
        {(close) => (
          <>
            {ALL.map((verb) => (
              <MenuItem
                key={verb}
                isDanger={VERBS[verb].isDanger}
                whyNot={whyNot}
                onClick={() => {
                  close();
                  act(verb);
                }}
              >
                {VERBS[verb].title}…
              </MenuItem>
            ))}
            <hr />
            {only !== undefined && (
              <MenuItem href={href(["instances"], { start: "new", like: only.id })} whyNot={whyReadOnly.value} onClick={close}>
                Start like this…
              </MenuItem>
            )}
            {(isAll || only !== undefined) && (
              <MenuItem
                href={
                  only === undefined
                    ? `${API}export?${props.filter}`
                    : `${API}${urlOf("instances/{id}/export", [only.id], { key: only.key })}`
                }
                onClick={close}
              >
                Export {only === undefined ? "histories" : "its history"}
              </MenuItem>
            )}
          </>
        )}
      </Menu>
      <Button kind="quiet small icon" label="Clear the selection" onClick={() => selection.clear()}>
        <Icon name="close" size={14} />
      </Button>
      {plan !== null && <OperateDialog plan={plan} onClose={() => setPlan(null)} onBegun={() => selection.clear()} />}
    </div>
  );
}
