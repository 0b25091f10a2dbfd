// Which columns are shown, in which order, and how dense.
import type { JSX } from "preact";

import { Segments } from "../../design/Controls.tsx";
import { Icon } from "../../design/icons.tsx";
import { Menu } from "../../design/Menu.tsx";
import { DEFAULT_COLUMNS, FIXED_COLUMNS, chosenColumns, columnOf, density } from "./columns.tsx";

/** `attributes` are the names that the rows have. */
export function ColumnsMenu({ attributes }: { attributes: () => readonly string[] }): JSX.Element {
  return (
    <Menu
      button={<Icon name="columns" />}
      buttonClass="button quiet icon"
      label="Columns and density"
      role="dialog"
      class="columns-menu"
    >
      {() => <Choice attributes={attributes()} />}
    </Menu>
  );
}

function Choice({ attributes }: { attributes: readonly string[] }): JSX.Element {
  const chosen = chosenColumns.value;
  const others = [...FIXED_COLUMNS, ...attributes.map((name) => `attr.${name}`)].filter((id) => !chosen.includes(id));
  const toggle = (id: string) => {
    chosenColumns.value = chosen.includes(id) ? chosen.filter((other) => other !== id) : [...chosen, id];
  };
  const move = (id: string) => {
    const at = chosen.indexOf(id);
    const next = [...chosen];
    next.splice(at, 1);
    next.splice(at - 1, 0, id);
    chosenColumns.value = next;
  };
  return (
    <div class="stack">
      <Segments
        label="Density"
        value={density.value}
        onChange={(next) => (density.value = next)}
        options={[
          ["comfortable", "Comfortable"],
          ["compact", "Compact"],
        ]}
      />
      <ul>
        {[...chosen, ...others].map((id) => (
          <li key={id} class="row">
            <label class="row">
              <input type="checkbox" checked={chosen.includes(id)} disabled={id === "id"} onChange={() => toggle(id)} />
              <span class="clip">{columnOf(id)?.label ?? id}</span>
            </label>
            {chosen.indexOf(id) > 0 && (
              <button
                type="button"
                class="button quiet small icon push"
                aria-label={`Move ${columnOf(id)?.label ?? id} forward`}
                onClick={() => move(id)}
              >
                <span class="up">
                  <Icon name="chevronDown" size={14} />
                </span>
              </button>
            )}
          </li>
        ))}
      </ul>
      <button type="button" class="button small" onClick={() => (chosenColumns.value = DEFAULT_COLUMNS)}>
        As it was at first
      </button>
    </div>
  );
}
