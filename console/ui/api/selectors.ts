// The selectors that a human may use, who does not see the endpoints themselves.
import { may } from "./client";
import { useResource } from "./resource";
import type { SelectorAccess } from "./shapes";
import type { Page } from "./types";

/** Returns the selectors that a key may use, endpoints first; none for an administrator, who sees the endpoints. */
export function useSelectorsOf(key: string | undefined): string[] {
  const path = key && !may("administer") ? `keys/${encodeURIComponent(key)}/access?allowed=true&limit=500` : null;
  const found = useResource<Page<SelectorAccess>>(path).data.value?.data ?? [];
  const names = (isEndpoint: boolean): string[] =>
    found.filter(({ kind }) => (kind === "endpoint") === isEndpoint).map(({ selector }) => selector);
  return [...names(true), ...names(false)];
}
