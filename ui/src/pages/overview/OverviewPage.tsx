import type { JSX } from "preact";

import { Empty } from "../../design/Problem.tsx";
import { Page } from "../../frame/Page.tsx";

export default function OverviewPage(): JSX.Element {
  return (
    <Page title="Overview">
      <Empty title="Nothing has been counted yet">
        <p>Starts, ends, durations and lag of this store appear here.</p>
      </Empty>
    </Page>
  );
}
