// Short names for the schemas of the OpenAPI document. `schema.d.ts` is generated (`npm run types`); nothing else is
// written by hand about the shape of answers.
import type { components, paths } from "./schema.d.ts";

type Schemas = components["schemas"];
export type Status = Schemas["Status"];
export type Instance = Schemas["Instance"];
export type ListedInstance = Schemas["ListedInstance"];
export type InstanceDetails = Schemas["InstanceDetails"];
export type Blocked = Schemas["Blocked"];
export type Wait = Schemas["Wait"];
export type Explanation = Schemas["Explanation"];
export type HistoryEvent = Schemas["Event"];
export type Node = Schemas["Node"];
export type Operation = Schemas["Operation"];
export type Tree = Schemas["Tree"];
export type ProblemBody = Schemas["Problem"];

/** The paths of `/api/v1`, without that prefix. */
type Short<P> = P extends `/api/v1/${infer Rest}` ? Rest : never;
export type Route = Short<keyof paths>;
type Of<R extends Route> = paths[`/api/v1/${R}`];

type Json<T> = T extends { content: { "application/json": infer Body } } ? Body : undefined;
type Good<T> = T extends { responses: infer Rs } ? Json<Rs[keyof Rs & (200 | 201 | 202 | 204)]> : never;

export type Method = "get" | "post" | "put" | "delete";
/** The routes that have a method. */
export type RouteOf<M extends Method> = { [R in Route]: Of<R> extends Record<M, object> ? R : never }[Route];
type Call<R extends Route, M extends Method> = Of<R> extends Record<M, infer C> ? C : never;

/** What a route answers when it succeeds. */
export type Answer<R extends Route, M extends Method = "get"> = Good<Call<R, M>>;
/** The body that a route takes. */
export type Body<R extends Route, M extends Method> =
  Call<R, M> extends { requestBody?: infer B } ? Json<NonNullable<B>> : undefined;
/** The query parameters of a route. Filters by attribute (`attr.NAME`) are added by name. */
export type Query<R extends Route, M extends Method> = (Call<R, M> extends { parameters: { query?: infer Q } }
  ? Omit<NonNullable<Q>, "attr.">
  : object) & { [attribute: `attr.${string}`]: string };

/** A count that is exact up to the store's limit. */
export interface Count {
  rows: number;
  more: boolean;
}
export type Session = Answer<"session">;
export type Stats = Answer<"stats">;
