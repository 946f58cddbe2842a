// The objects that alerts are about, as links to their pages.
import type { Alert, AlertKind } from "../../api/types";
import { href } from "../../app/router";
import { Ref } from "../../part/links";
import { aboutOf, KINDS } from "./kinds";

type Props = { kind: string; object: string | null; name: string | null | undefined };

/** The object of an alert or of a rule's scope; without one the alert is about the gateway. */
export function AlertObject({ kind, object, name = null }: Props) {
  const about = aboutOf(kind);
  if (object === null) return <OfGateway kind={kind} />;
  if (about === "provider") return <Ref kind="provider" id={object} />;
  if (about === "quota") return <To path={href("/quotas", { edit: object })} text={name ?? object} />;
  if (about === "node") return <To path={href("/nodes", { node: object.replace("node_", "") })} text={name ?? object} />;
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

/** The title of an alert: `Quota nearly used up: load-test`. */
export function alertTitle({ kind, object_name }: Pick<Alert, "kind" | "object_name">): string {
  const title = KINDS[kind as AlertKind]?.title ?? kind;
  return object_name === null ? title : `${title}: ${object_name}`;
}
