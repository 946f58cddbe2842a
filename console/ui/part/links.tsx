// An id is a link wherever it stands, shown by its name where that is known.
import { may, self } from "../api/client";
import { href } from "../app/router";
import { UNKNOWN } from "./format";

type Props = { id: string | null | undefined; name?: string | null | undefined };

const PATHS = { key: "/keys/", project: "/access/projects/", human: "/access/humans/", provider: "/providers/" } as const;

/** Humans without the administrators' group have no pages of providers and of other humans. */
const hasPage = (kind: keyof typeof PATHS, id: string): boolean =>
  may("administer") || kind === "key" || kind === "project" || (kind === "human" && id === self());

export function Ref({ kind, id, name }: Props & { kind: keyof typeof PATHS }) {
  if (!id) return <span class="faint">{UNKNOWN}</span>;
  const shown = name || id;
  const look = name ? "clip" : "mono clip";
  if (!hasPage(kind, id))
    return (
      <span title={id} class={look}>
        {shown}
      </span>
    );
  return (
    <a href={href(PATHS[kind] + encodeURIComponent(id))} title={id} class={look}>
      {shown}
    </a>
  );
}
