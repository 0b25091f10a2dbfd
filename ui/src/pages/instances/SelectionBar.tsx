// What is selected, and what can be done with it.
import type { JSX } from "preact";

import { API } from "../../api/client.ts";
import type { Count } from "../../api/types.ts";
import { Button, countText } from "../../design/Controls.tsx";
import { Icon } from "../../design/icons.tsx";
import { Menu, MenuItem } from "../../design/Menu.tsx";
import { whyReadOnly } from "../../frame/state.ts";
import { VERBS, actOnFilter, actOnRows, type Verb } from "./acting.tsx";
import type { Filter } from "./filter.ts";
import type { Selection } from "./selection.ts";

const FIRST: readonly Verb[] = ["cancel", "terminate", "retry"];
const OTHERS: readonly Verb[] = ["pause", "resume", "delete"];

export function SelectionBar(props: {
  selection: Selection;
  filter: Filter;
  filterText: string;
  count: Count | undefined;
}): JSX.Element | null {
  const { selection, count } = props;
  if (selection.isEmpty) return null;
  const isAll = selection.isAll.value;
  const act = (verb: Verb) => {
    if (isAll && count !== undefined) actOnFilter(verb, props.filter, props.filterText, count);
    else actOnRows(verb, selection.rows, () => selection.clear());
  };
  const canWiden = !isAll && count !== undefined && (count.more || count.rows > selection.size);
  return (
    <div class="selection-bar" role="region" aria-label="Selection">
      <b role="status">{isAll && count !== undefined ? `All ${countText(count)} selected` : `${countText(selection.size)} selected`}</b>
      {canWiden && (
        <button type="button" class="button quiet small" onClick={() => (selection.isAll.value = true)}>
          Select all {count === undefined ? "" : countText(count)} that the filter shows
        </button>
      )}
      <span class="push" />
      {FIRST.map((verb) => <Button key={verb} kind="small" whyNot={whyReadOnly.value} onClick={() => act(verb)}>{VERBS[verb].title}…</Button>)}
      <Menu button={<Icon name="more" />} buttonClass="button small icon" label="More actions">
        {(close) => (
          <>
            {OTHERS.map((verb) => (
              <MenuItem key={verb} isDanger={VERBS[verb].isDanger} whyNot={whyReadOnly.value} onClick={() => { close(); act(verb); }}>
                {VERBS[verb].title}…
              </MenuItem>
            ))}
            {isAll && <MenuItem href={`${API}export?${props.filterText}`} onClick={close}>Export histories</MenuItem>}
          </>
        )}
      </Menu>
      <Button kind="quiet small icon" label="Clear the selection" onClick={() => selection.clear()}><Icon name="close" size={14} /></Button>
    </div>
  );
}
