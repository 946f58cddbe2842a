// The objects that alerts are about, as links to their pages.
import { type Names, useNames } from "../../api/names";
import { href } from "../../app/router";
import { Ref } from "../../part/links";
import { aboutOf } from "./kinds";

type Props = { kind: string; object: string | null; names: Names };

/** The object of an alert or of a rule's scope; without one the alert is about the gateway. */
export function AlertObject({ kind, object, names }: Props) {
  const about = aboutOf(kind);
  if (object === null) return <OfGateway kind={kind} />;
  const name = names.get(object) ?? null;
  if (about === "provider") return <Ref kind="provider" id={object} />;
  if (about === "quota") return <To path={href("/quotas", { edit: object })} text={object} />;
  if (about === "endpoint") return <To path={href(`/routes/${encodeURIComponent(object)}`)} text={object} />;
  if (about === "key" || about === "spender") return <Ref kind={object.startsWith("prj_") ? "project" : "key"} id={object} name={name} />;
  return <span class="mono clip">{object}</span>;
}

function OfGateway({ kind }: { kind: string }) {
  const about = aboutOf(kind);
  if (about === "backup") return <To path={href("/backups")} text="backups" />;
  if (about === "file") return <To path={href("/settings")} text="configuration" />;
  return <>the gateway</>;
}

function To({ path, text }: { path: string; text: string }) {
  return (
    <a class="clip" href={path} title={text}>
      {text}
    </a>
  );
}

/** The names of the keys and projects among `objects`, the only ones whose ids say nothing. */
export function useObjectNames(objects: (string | null)[]): Names {
  const has = (prefix: string): boolean => objects.some((object) => object?.startsWith(prefix));
  return useNames([...(has("key_") ? (["key"] as const) : []), ...(has("prj_") ? (["project"] as const) : [])]);
}
