import type { JSX } from "preact";

import { Empty } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";

export default function InstancePage(): JSX.Element {
  return (
    <Page title="Instance">
      <Empty title="Nothing to show">
        <p>The instance appears here.</p>
      </Empty>
    </Page>
  );
}
