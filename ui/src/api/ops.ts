// Short names for the schemas of answers about the whole store: causes, activities, nodes, versions, history of counts.
import type { components } from "./schema.d.ts";

type Schemas = components["schemas"];
export type Divergence = Schemas["Divergence"];
/** Instances that the same fault blocks. The report is that of the instance that was tried last. */
export type Cause = Schemas["Cause"];
/** `id` is `null` if its instance was deleted meanwhile. */
export type Task = Schemas["Task"];
/** `nodes` is how many live nodes can run them. */
export type TaskGroup = Schemas["TaskGroup"];
/** Starts before `started_from_ms` were not counted. */
export type StatsHistory = Schemas["StatsHistory"];
export type DurationRow = Schemas["Durations"]["rows"][number];
export type Version = Schemas["OrchestrationVersion"];
export type Shard = Schemas["Shard"];
export type Finding = Schemas["Finding"];
export type FullNode = Schemas["Node"];
/** `total` is how many the filter showed at the beginning. */
export type FullOperation = Schemas["Operation"];
