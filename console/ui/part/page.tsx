// The frame of a page: its title, its way back, tabs and facts.
import type { ComponentChildren } from "preact";
import { useLayoutEffect } from "preact/hooks";
import { href, param, path } from "../app/router";

export type Crumb = { text: string; to: string };

type PageProps = {
  title: string;
  /** One line below the title. */
  lead?: ComponentChildren;
  actions?: ComponentChildren;
  children: ComponentChildren;
};

export function Page({ title, lead, actions, children }: PageProps) {
  useLayoutEffect(() => {
    document.title = `${title} · llmgw`;
  }, [title]);
  return (
    <>
      <div class="page-head">
        <div class="grow">
          <h1 class="wrap">{title}</h1>
          {lead && <p>{lead}</p>}
        </div>
        {actions}
      </div>
      {children}
    </>
  );
}

type CardProps = { title?: string; aside?: ComponentChildren; children: ComponentChildren; bare?: boolean };

export function Card({ title, aside, children, bare }: CardProps) {
  return (
    <section class="card" aria-label={title}>
      {title && (
        <div class="card-head">
          <h2 class="grow">{title}</h2>
          {aside}
        </div>
      )}
      {bare ? children : <div class="card-body">{children}</div>}
    </section>
  );
}

/** Pairs of a name and a value; pairs without a value are left out. */
export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
  const known = rows.filter(([, value]) => value !== null && value !== undefined && value !== false);
  if (known.length === 0) return null;
  return (
    <dl class="facts">
      {known.map(([name, value]) => (
        <div key={name} class="fact">
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Tabs as links: the open one stands in the address as `tab`. */
export function Tabs({ label, tabs }: { label: string; tabs: [id: string, title: string][] }) {
  const open = param("tab") || tabs[0]?.[0];
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(([id, title], i) => (
        <a key={id} href={href(path.value, { tab: i ? id : null })} aria-current={open === id ? "page" : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}

/** A bar that shows a share. The figures stand beside it. */
export function Meter({ share, kind = "" }: { share: number; kind?: "" | "warn" | "bad" | "quiet" }) {
  const width = Math.max(0, Math.min(100, share * 100));
  return (
    <span class="meter" aria-hidden="true">
      <svg preserveAspectRatio="none" viewBox="0 0 100 6">
        <rect class={`fill ${kind}`} width={width} height="6" />
      </svg>
    </span>
  );
}
