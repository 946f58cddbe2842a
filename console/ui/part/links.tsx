// An id is a link wherever it stands, shown by its name where that is known.
import { href } from "../app/router";
import { UNKNOWN } from "./format";

type Props = { id: string | null | undefined; name?: string | null | undefined };

const PATHS = { key: "/keys/", project: "/access/projects/", human: "/access/humans/", provider: "/providers/" } as const;

export function Ref({ kind, id, name }: Props & { kind: keyof typeof PATHS }) {
  if (!id) return <span class="faint">{UNKNOWN}</span>;
  return (
    <a href={href(PATHS[kind] + encodeURIComponent(id))} title={id} class={name ? "clip" : "mono clip"}>
      {name || id}
    </a>
  );
}
