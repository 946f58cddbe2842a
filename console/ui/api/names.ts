// The names of keys, projects and humans, for lists that hold their ids.
import { useResource } from "./resource";
import type { Page } from "./types";

export type Names = Map<string, string>;
type Named = Page<{ id: string; name: string }>;

const LISTS = { key: "keys", project: "projects", principal: "principals" } as const;

/** Reads the names of the objects of some kinds. */
export function useNames(kinds: (keyof typeof LISTS)[]): Names {
  const path = (kind: keyof typeof LISTS): string | null => (kinds.includes(kind) ? `${LISTS[kind]}?limit=500` : null);
  const keys = useResource<Named>(path("key")).data.value?.data ?? [];
  const projects = useResource<Named>(path("project")).data.value?.data ?? [];
  const humans = useResource<Named>(path("principal")).data.value?.data ?? [];
  return new Map([...keys, ...projects, ...humans].map(({ id, name }) => [id, name]));
}
