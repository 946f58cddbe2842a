//! Where below its base URL each kind of provider answers what.
//!
//! A rule is a template. What an instance knows is filled in once, when its configuration is read, so that serving
//! only copies a reference; what only a request knows (a model, the id of an operation) is percent-encoded into it,
//! so that no name can reach another path.

use http::uri::PathAndQuery;

use crate::operation::Dialect;

/// What is asked of a target in a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// An answer in one piece.
    Whole,
    /// An answer as a stream.
    Stream,
    /// How many tokens a request has.
    Count,
    /// What a model says that has a method of its own, as those of Google that make images.
    Predict,
    /// The beginning of a long-running operation.
    Start,
    /// How far a long-running operation is: what is read at the address that its id makes.
    Poll,
    /// The same, where its id is posted to the address of its model.
    PollByPost,
    /// What a long-running operation has made.
    Content,
}

impl Call {
    /// An answer, as a stream or in one piece.
    pub fn answer(stream: bool) -> Self {
        if stream { Self::Stream } else { Self::Whole }
    }
}

/// Where calls of one dialect go, below the base URL.
#[derive(Debug)]
pub struct PathRule {
    /// The dialect.
    pub dialect: Dialect,
    /// What is asked for there.
    pub calls: &'static [Call],
    /// As `/models/{model}:generateContent`. `{region}`, `{project}` and `{location}` are the instance's own fields,
    /// `{model}` is the model of a request, and `{id}` is the id of an operation, which may hold slashes. What stands
    /// between `<` and `>` is left out where the credential implies it.
    pub template: &'static str,
}

/// The rules that hold for base URLs that end in a certain way.
#[derive(Debug)]
pub struct Layout {
    /// The end of the base URL's path; empty fits every one.
    pub base_ends: &'static str,
    /// The rules. A dialect without one is not spoken there.
    pub rules: &'static [PathRule],
    /// Where models are listed, all of these together; none where nothing lists them.
    pub lists: &'static [ListRule],
    /// The `api-version` of requests, where one belongs to each; the instance's own wins over it.
    pub api_version: Option<&'static str>,
}

/// One list of models.
#[derive(Debug)]
pub struct ListRule {
    /// Another address than the kind's own base URL, which goes before the template. Where an instance has a base
    /// URL of its own, its lists are below that.
    pub host: Option<&'static str>,
    /// As in [`PathRule`].
    pub template: &'static str,
    /// How a long list goes on.
    pub pages: Pages,
}

/// How a list that does not fit into one answer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// It is always whole.
    One,
    /// `has_more` and `last_id`, which is the next request's `after_id`.
    AfterId,
    /// `nextPageToken`, which is the next request's `pageToken`.
    PageToken,
    /// `nextToken`, which is the next request's `nextToken`.
    NextToken,
}

/// Where an instance lists models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListAddress {
    /// The whole address of the first page.
    pub url: String,
    /// How it goes on.
    pub pages: Pages,
}

/// What a template may refer to of an instance's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// `{region}`.
    pub region: Option<&'a str>,
    /// `{project}`.
    pub project: Option<&'a str>,
    /// `{location}`.
    pub location: Option<&'a str>,
    /// `{api_version}`.
    pub api_version: Option<&'a str>,
    /// The credential itself says where, so that paths leave out what stands between `<` and `>`.
    pub is_implied: bool,
}

/// The paths of one instance, the base URL's own included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths(Vec<(Dialect, Call, Path)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Path {
    Ready(PathAndQuery),
    /// A name belongs between the two; with slashes or without.
    Named(Box<str>, Box<str>, Slashes),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slashes {
    Kept,
    Encoded,
}

impl Paths {
    /// The paths of `layout` below `base`, the path of a base URL without a slash at its end.
    pub fn new(layout: &Layout, base: &str, place: &Place<'_>) -> Result<Self, Missing> {
        let mut paths = Vec::new();
        for rule in layout.rules {
            let path = Path::new(base, &filled(layout, rule.template, place)?)?;
            paths.extend(rule.calls.iter().map(|call| (rule.dialect, *call, path.clone())));
        }
        Ok(Self(paths))
    }

    /// Whether anything is asked for in `dialect`.
    pub fn has(&self, dialect: Dialect) -> bool {
        self.0.iter().any(|(own, _, _)| *own == dialect)
    }

    /// Every dialect in which something is asked for, each once.
    pub fn dialects(&self) -> Vec<Dialect> {
        let mut dialects: Vec<_> = self.0.iter().map(|(dialect, _, _)| *dialect).collect();
        dialects.dedup();
        dialects
    }

    /// The path of `call` in `dialect`; `name` is the model, or the id of an operation.
    pub fn of(&self, dialect: Dialect, call: Call, name: &str) -> Option<PathAndQuery> {
        self.find(dialect, call)?.with(name)
    }

    /// Every path as text, with the places of names left open.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(_, _, path)| match path {
            Path::Ready(path) => path.as_str().to_owned(),
            Path::Named(before, after, _) => format!("{before}{{}}{after}"),
        })
    }

    fn find(&self, dialect: Dialect, call: Call) -> Option<&Path> {
        self.0.iter().find(|(own, calls, _)| *own == dialect && *calls == call).map(|(_, _, path)| path)
    }
}

/// A field that an instance must have for its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing(pub &'static str);

impl Layout {
    /// The addresses of the lists of models. `base_url`, without a slash at its end, is the kind's own or, if
    /// `is_own`, the instance's.
    pub fn lists(
        &self,
        base_url: &str,
        is_own: bool,
        place: &Place<'_>,
    ) -> Result<Vec<ListAddress>, Missing> {
        let address = |rule: &ListRule| {
            let host = rule.host.filter(|_| !is_own).unwrap_or(base_url);
            let url = format!("{}{}", fill(host, place)?, filled(self, rule.template, place)?);
            Ok(ListAddress { url, pages: rule.pages })
        };
        self.lists.iter().map(address).collect()
    }
}

/// `template` with everything in it that is the instance's own.
fn filled(layout: &Layout, template: &str, place: &Place<'_>) -> Result<String, Missing> {
    let mut text = fill(template, place)?;
    if let Some(version) = place.api_version.or(layout.api_version)
        && !text.contains("api-version=")
    {
        let mark = if text.contains('?') { '&' } else { '?' };
        text.push_str(&format!("{mark}api-version={version}"));
    }
    Ok(text)
}

/// `template`, a path or a base URL, with the fields of `place` that it refers to.
pub fn fill(template: &str, place: &Place<'_>) -> Result<String, Missing> {
    let mut text = match (template.split_once('<'), place.is_implied) {
        (Some((before, rest)), true) => {
            let after = rest.split_once('>').map_or(rest, |(_, after)| after);
            format!("{before}{after}")
        }
        (Some(_), false) => template.replace(['<', '>'], ""),
        (None, _) => template.to_owned(),
    };
    for (name, mark, value) in [
        ("region", "{region}", place.region),
        ("project", "{project}", place.project),
        ("location", "{location}", place.location),
    ] {
        if text.contains(mark) {
            text = text.replace(mark, value.ok_or(Missing(name))?);
        }
    }
    Ok(text)
}

impl Path {
    fn new(base: &str, path: &str) -> Result<Self, Missing> {
        for (mark, slashes) in [("{model}", Slashes::Encoded), ("{id}", Slashes::Kept)] {
            if let Some((before, after)) = path.split_once(mark) {
                return Ok(Self::Named(format!("{base}{before}").into(), after.into(), slashes));
            }
        }
        format!("{base}{path}").parse().map(Self::Ready).map_err(|_| Missing("base_url"))
    }

    fn with(&self, name: &str) -> Option<PathAndQuery> {
        match self {
            Self::Ready(path) => Some(path.clone()),
            Self::Named(before, after, slashes) => {
                let mut path = String::with_capacity(before.len() + name.len() + after.len() + 8);
                path.push_str(before);
                encode(name, *slashes, &mut path)?;
                path.push_str(after);
                PathAndQuery::try_from(path).ok()
            }
        }
    }
}

/// Percent-encodes everything but letters, digits and `-._~@`. None: a part of the name means another path.
fn encode(name: &str, slashes: Slashes, out: &mut String) -> Option<()> {
    if name.is_empty() || name.split('/').any(|part| part == "." || part == "..") {
        return None;
    }
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'@' => {
                out.push(byte.into());
            }
            b'/' if slashes == Slashes::Kept => out.push('/'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    Some(())
}

/// An answer in either form.
pub(super) const ANSWER: &[Call] = &[Call::Whole, Call::Stream];

/// OpenAI's paths, and where servers of its API speak Anthropic's protocol, if they do.
pub(super) const OPENAI_RULES: &[PathRule] = &[
    PathRule { dialect: Dialect::Chat, calls: ANSWER, template: "/chat/completions" },
    PathRule { dialect: Dialect::Responses, calls: ANSWER, template: "/responses" },
    PathRule { dialect: Dialect::Messages, calls: ANSWER, template: "/messages" },
    PathRule { dialect: Dialect::Messages, calls: &[Call::Count], template: "/messages/count_tokens" },
    PathRule { dialect: Dialect::Embeddings, calls: ANSWER, template: "/embeddings" },
    PathRule { dialect: Dialect::Speech, calls: ANSWER, template: "/audio/speech" },
    PathRule { dialect: Dialect::Transcription, calls: ANSWER, template: "/audio/transcriptions" },
    PathRule { dialect: Dialect::Images, calls: ANSWER, template: "/images/generations" },
    PathRule { dialect: Dialect::Videos, calls: &[Call::Start], template: "/videos" },
    PathRule { dialect: Dialect::Videos, calls: &[Call::Poll], template: "/videos/{id}" },
    PathRule { dialect: Dialect::Videos, calls: &[Call::Content], template: "/videos/{id}/content" },
];

/// OpenAI's API below any base URL.
pub(super) const OPENAI: &[Layout] =
    &[Layout { base_ends: "", rules: OPENAI_RULES, lists: OPENAI_LISTS, api_version: None }];

/// OpenAI's list of models.
pub(super) const OPENAI_LISTS: &[ListRule] =
    &[ListRule { host: None, template: "/models", pages: Pages::One }];

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &[PathRule] = &[
        PathRule { dialect: Dialect::Bedrock, calls: &[Call::Whole], template: "/model/{model}/converse" },
        PathRule {
            dialect: Dialect::Gemini,
            calls: &[Call::Stream],
            template: "/{project}/{model}:stream?alt=sse",
        },
        PathRule { dialect: Dialect::Videos, calls: &[Call::Poll], template: "/v1/{id}" },
    ];
    const LISTS: &[ListRule] = &[
        ListRule { host: None, template: "/models", pages: Pages::One },
        ListRule { host: Some("https://{region}.example"), template: "/more?n=1", pages: Pages::NextToken },
    ];
    const LAYOUT: Layout = Layout { base_ends: "", rules: RULES, lists: LISTS, api_version: None };

    #[test]
    fn a_name_stays_where_it_belongs() {
        let place = Place { project: Some("p-1"), ..Place::default() };
        let paths = Paths::new(&LAYOUT, "/base", &place).unwrap();
        let path = |dialect, call, name| paths.of(dialect, call, name).map(|path| path.as_str().to_owned());
        for (name, want) in [
            ("anthropic.claude:0", "/base/model/anthropic.claude%3A0/converse"),
            ("arn:aws:x/../y?z#", ""),
            ("a/b?c=d#e %2f", "/base/model/a%2Fb%3Fc%3Dd%23e%20%252f/converse"),
            ("modèle", "/base/model/mod%C3%A8le/converse"),
            ("..", ""),
            ("", ""),
        ] {
            let found = path(Dialect::Bedrock, Call::Whole, name);
            assert_eq!(found.unwrap_or_default(), want, "{name}");
        }
        assert_eq!(path(Dialect::Gemini, Call::Stream, "m").unwrap(), "/base/p-1/m:stream?alt=sse");
        assert_eq!(
            path(Dialect::Videos, Call::Poll, "models/v/operations/1").unwrap(),
            "/base/v1/models/v/operations/1"
        );
        assert_eq!(path(Dialect::Videos, Call::Poll, "models/../../x"), None);
        assert_eq!(path(Dialect::Videos, Call::Poll, "x?key=1").unwrap(), "/base/v1/x%3Fkey%3D1");
        assert_eq!(path(Dialect::Chat, Call::Whole, "m"), None, "not spoken there");
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(Paths::new(&LAYOUT, "", &Place::default()), Err(Missing("project")));
    }

    #[test]
    fn a_version_goes_with_every_path() {
        let place = Place { project: Some("p"), api_version: Some("2024-10-21"), ..Place::default() };
        let texts: Vec<String> = Paths::new(&LAYOUT, "", &place).unwrap().texts().collect();
        assert_eq!(
            texts,
            [
                "/model/{}/converse?api-version=2024-10-21",
                "/p/{}:stream?alt=sse&api-version=2024-10-21",
                "/v1/{}?api-version=2024-10-21"
            ]
        );
    }

    #[test]
    fn lists_are_beside_the_kinds_address_or_below_an_own_one() {
        let place = Place { region: Some("eu"), ..Place::default() };
        let urls = |is_own| {
            let lists = LAYOUT.lists("https://h/b", is_own, &place).unwrap();
            lists.into_iter().map(|list| list.url).collect::<Vec<_>>()
        };
        assert_eq!(urls(false), ["https://h/b/models", "https://eu.example/more?n=1"]);
        assert_eq!(urls(true), ["https://h/b/models", "https://h/b/more?n=1"]);
        assert_eq!(LAYOUT.lists("https://h", false, &Place::default()), Err(Missing("region")));
    }
}
