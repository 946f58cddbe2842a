// The pages: their groups, addresses, keys and components. A page whose routes the gateway lacks is not here.
import type { ComponentType } from "preact";
import { may } from "../api/client";
import { nodeName } from "../api/reach";
import type { Permission } from "../api/types";
import { AccessPage } from "../page/access";
import { RulesPage } from "../page/alert_rules";
import { AlertsPage } from "../page/alerts";
import { AuditPage, AuditRecordPage } from "../page/audit";
import { BackupsPage } from "../page/backups";
import { ConnectPage } from "../page/connect";
import { ConnectionsPage } from "../page/connections";
import { DevicePage } from "../page/device";
import { HumanAccessPage, KeyAccessPage, ProjectAccessPage } from "../page/effective_access";
import { HumanPage } from "../page/human";
import { KeyPage } from "../page/key";
import { KeysPage } from "../page/keys";
import { ModelsPage } from "../page/models";
import { NodesPage } from "../page/nodes";
import { OutboxPage } from "../page/outbox";
import { OverviewPage } from "../page/overview";
import { PlaygroundPage } from "../page/playground";
import { ProjectPage } from "../page/project";
import { ProviderPage } from "../page/provider";
import { ProvidersPage } from "../page/providers";
import { QuotasPage } from "../page/quotas";
import { RequestPage } from "../page/request";
import { RequestsPage } from "../page/requests";
import { RoutePage } from "../page/route";
import { RoutesPage } from "../page/routes";
import { SettingsPage } from "../page/settings";
import { SetupPage } from "../page/setup";
import { UsagePage } from "../page/usage";
import { RunsPage } from "../page/usage/runs";
import { WebhooksPage } from "../page/webhooks";
import type { IconName } from "../part/icon";

/** A page of the navigation. Without `needs` it is for administrators, with `only` for humans without their group alone. */
export type PageEntry = {
  title: string;
  path: string;
  icon: IconName;
  key?: string;
  needs?: Permission;
  only?: "humans";
  /** The pages that its tabs lead to. */
  tabs?: { title: string; path: string }[];
};
export type Group = { title: string | null; pages: PageEntry[] };

/** The set-up. It is in the navigation until it is finished. */
export const SETUP = "/setup";

/** The gateways that share a database. They are offered if this one does. */
export const NODES = "/nodes";

/** The alerts. Their entry has the number of the open ones. */
export const ALERTS = "/alerts";
/** Its entry counts the providers that are failing. */
export const PROVIDERS = "/providers";

/** The navigation, in its order. `key` follows `g` on the keyboard. */
export const GROUPS: Group[] = [
  {
    title: null,
    pages: [
      { title: "Overview", path: "/", icon: "activity", key: "o" },
      { title: "Set up", path: SETUP, icon: "circle-check" },
      { title: "Requests", path: "/requests", icon: "list", key: "r", needs: "see_usage" },
      {
        title: "Usage",
        path: "/usage",
        icon: "chart-column",
        key: "u",
        needs: "see_usage",
        tabs: [{ title: "Runs", path: "/usage/runs" }],
      },
    ],
  },
  {
    title: "Serve",
    pages: [
      { title: "Providers", path: PROVIDERS, icon: "plug", key: "p" },
      { title: "Routes", path: "/routes", icon: "route", key: "t" },
      { title: "Models", path: "/models", icon: "boxes", key: "m" },
      { title: "Connections", path: "/connections", icon: "plug", key: "p", needs: "see_connections", only: "humans" },
      { title: "Playground", path: "/playground", icon: "flask-conical", key: "y", needs: "run_requests" },
    ],
  },
  {
    title: "Allow",
    pages: [
      { title: "Access", path: "/access", icon: "users", key: "a", needs: "see_projects" },
      { title: "API keys", path: "/keys", icon: "key-round", key: "k", needs: "see_keys" },
      { title: "Quotas", path: "/quotas", icon: "gauge", key: "q", needs: "see_quotas" },
      { title: "Connect a client", path: "/connect", icon: "terminal", key: "c", needs: "see_keys" },
    ],
  },
  {
    title: "Operate",
    pages: [
      {
        title: "Alerts",
        path: ALERTS,
        icon: "triangle-alert",
        key: "l",
        tabs: [
          { title: "Rules for alerts", path: "/alerts/rules" },
          { title: "Webhooks", path: "/webhooks" },
          { title: "Outbox", path: "/outbox" },
        ],
      },
      { title: "Audit", path: "/audit", icon: "scroll-text", key: "d" },
      { title: "Nodes", path: NODES, icon: "server", key: "n" },
      { title: "Backups", path: "/backups", icon: "archive", key: "b" },
      { title: "Settings", path: "/settings", icon: "settings-2", key: "s" },
    ],
  },
];

export const PAGES: PageEntry[] = GROUPS.flatMap((group) => group.pages);

/** The entry of the navigation that a path belongs to. */
export const entryOf = (here: string): PageEntry | undefined =>
  PAGES.find(({ path, tabs = [] }) => [path, ...tabs.map((tab) => tab.path)].some((of) => here === of || here.startsWith(`${of}/`)));

const isPermitted = ({ needs, only }: PageEntry): boolean => may(needs ?? "administer") && !(only && may("administer"));

const isShown = (page: PageEntry): boolean => isPermitted(page) && (page.path !== NODES || nodeName.value !== null);

/** The pages that the caller may use. */
export const permittedPages = (): PageEntry[] => PAGES.filter(isPermitted);

/** The pages that the caller is offered: those of several gateways only if there are several. */
export const shownPages = (): PageEntry[] => PAGES.filter(isShown);

/** The navigation of the caller. */
export const shownGroups = (): Group[] =>
  GROUPS.map(({ title, pages }) => ({ title, pages: pages.filter(isShown) })).filter(({ pages }) => pages.length > 0);

/** The page that the caller begins with: a human without the administrators' group has no overview. */
export const start = (): string => (may("administer") ? HOME : "/keys");

/** The page that the console begins with. */
export const HOME = "/";

/** Every pattern of a path and its component; the parts of the path are the component's properties. */
// biome-ignore lint/suspicious/noExplicitAny: each component takes the parts of its own pattern
export const ROUTES: [pattern: string, component: ComponentType<any>][] = [
  ["/", OverviewPage],
  ["/requests", RequestsPage],
  ["/requests/:id", RequestPage],
  ["/usage", UsagePage],
  ["/usage/runs", RunsPage],
  ["/providers", ProvidersPage],
  ["/providers/:id", ProviderPage],
  ["/routes", RoutesPage],
  ["/routes/:name", RoutePage],
  ["/models", ModelsPage],
  ["/connections", ConnectionsPage],
  ["/playground", PlaygroundPage],
  ["/access", AccessPage],
  ["/access/humans/:id", HumanPage],
  ["/access/humans/:id/access", HumanAccessPage],
  ["/access/projects/:id", ProjectPage],
  ["/access/projects/:id/access", ProjectAccessPage],
  ["/keys", KeysPage],
  ["/keys/:id", KeyPage],
  ["/keys/:id/access", KeyAccessPage],
  ["/quotas", QuotasPage],
  ["/connect", ConnectPage],
  ["/device", DevicePage],
  ["/alerts", AlertsPage],
  ["/alerts/rules", RulesPage],
  ["/webhooks", WebhooksPage],
  ["/outbox", OutboxPage],
  ["/audit", AuditPage],
  ["/audit/:id", AuditRecordPage],
  [NODES, NodesPage],
  ["/backups", BackupsPage],
  ["/settings", SettingsPage],
  [SETUP, SetupPage],
];
