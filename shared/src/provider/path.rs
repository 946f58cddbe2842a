//! The paths of each provider kind below its base URL.
//!
//! A rule is a template. The fields of an instance are filled in once, when its configuration is read, so that
//! serving only copies a reference. Values of a request (a model, the ID of an operation) are percent-encoded into
//! the template, so that no name can reach another path.

use http::uri::PathAndQuery;
use percent_encoding::AsciiSet;

use crate::operation::Dialect;
use crate::percent;

/// The kind of call to a target in a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UpstreamCall {
    /// A request for a whole answer.
    Whole,
    /// A request for the answers to several inputs, if it has a path of its own.
    Batch,
    /// A request for an answer as a stream.
    Stream,
    /// A request for the number of tokens of a request.
    Count,
    /// A request for a prediction: some models, such as Google's image models, have a separate method.
    Predict,
    /// The start of a long-running operation.
    Start,
    /// A request for the state of a long-running operation, at an address that contains its ID.
    Poll,
    /// The same request, with the ID posted to the address of the model.
    PollByPost,
    /// A request for the result of a long-running operation.
    Content,
    /// A request for a stored response, or for its deletion.
    Stored,
    /// A request to cancel a stored response.
    Cancel,
    /// A request for the input of a stored response.
    InputItems,
    /// A request for a shorter form of a conversation.
    Compact,
}

impl UpstreamCall {
    /// Returns the call for an answer, as a stream or in one piece.
    pub fn answer(stream: bool) -> Self {
        if stream { Self::Stream } else { Self::Whole }
    }
}

/// The path of some calls of one dialect, below the base URL.
#[derive(Debug)]
pub struct PathRule {
    /// The dialect.
    pub dialect: Dialect,
    /// The calls that use this path.
    pub calls: &'static [UpstreamCall],
    /// The path template, such as `/models/{model}:generateContent`. `{region}`, `{project}`, `{location}` and
    /// `{provider}` are fields of the instance, `{model}` is the model of a request, and `{id}` is the ID of an operation or
    /// of a stored response, which may contain slashes. The part between `<` and `>` is omitted if the credential implies it.
    pub template: &'static str,
}

/// The rules for base URLs with a certain suffix.
#[derive(Debug)]
pub struct Layout {
    /// The suffix of the base URL's path; an empty one matches every path.
    pub base_ends: &'static str,
    /// The rules. A dialect without a rule is not supported.
    pub rules: &'static [PathRule],
    /// The lists of models, which are combined; empty if there are none.
    pub lists: &'static [ListRule],
    /// The default `api-version`, if requests need one; the instance's own takes precedence.
    pub api_version: Option<&'static str>,
}

/// Computes a base URL from the fields of an instance.
pub type BaseUrl = fn(&Place<'_>) -> Result<String, Missing>;

/// One list of models.
#[derive(Debug)]
pub struct ListRule {
    /// The base URL of the list, if it differs from the kind's own. An instance with a configured base URL has its
    /// lists below that instead.
    pub host: Option<BaseUrl>,
    /// The path template, as in [`PathRule`].
    pub template: &'static str,
    /// The pagination of the list.
    pub pages: Pages,
}

/// The pagination of a list that may span several responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The list is always complete.
    One,
    /// `has_more` and `last_id`; the latter is the next request's `after_id`.
    AfterId,
    /// `nextPageToken`, the next request's `pageToken`.
    PageToken,
    /// `nextToken`, the next request's `nextToken`.
    NextToken,
}

/// The address of one list of models of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListAddress {
    /// The full URL of the first page.
    pub url: String,
    /// The pagination of the list.
    pub pages: Pages,
}

/// The fields of an instance that a template may refer to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place<'a> {
    /// `{region}`.
    pub region: Option<&'a str>,
    /// `{project}`.
    pub project: Option<&'a str>,
    /// `{location}`.
    pub location: Option<&'a str>,
    /// `{provider}`: the provider of an extension.
    pub provider: Option<&'a str>,
    /// `{api_version}`.
    pub api_version: Option<&'a str>,
    /// True if the credential implies the location, so that paths omit the part between `<` and `>`.
    pub is_implied: bool,
}

/// The paths of one instance, including the base URL's own path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths(Vec<(Dialect, UpstreamCall, Path)>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Path {
    Ready(PathAndQuery),
    /// A path with a gap for a name between the two parts; the third field determines the encoding of slashes in the name.
    Named(Box<str>, Box<str>, Slashes),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slashes {
    Kept,
    Encoded,
}

impl Paths {
    /// Builds the paths of `layout` below `base`, the path of a base URL without a trailing slash.
    pub fn new(layout: &Layout, base: &str, place: &Place<'_>) -> Result<Self, Missing> {
        let mut paths = Vec::new();
        for rule in layout.rules {
            let path = Path::new(base, &filled(layout, rule.template, place)?)?;
            paths.extend(rule.calls.iter().map(|call| (rule.dialect, *call, path.clone())));
        }
        Ok(Self(paths))
    }

    /// Returns true if the instance has a path for any call in `dialect`.
    pub fn has(&self, dialect: Dialect) -> bool {
        self.0.iter().any(|(own, _, _)| *own == dialect)
    }

    /// Returns every dialect that has a path, each once.
    pub fn dialects(&self) -> Vec<Dialect> {
        let mut dialects: Vec<_> = self.0.iter().map(|(dialect, _, _)| *dialect).collect();
        dialects.dedup();
        dialects
    }

    /// Returns the path of `call` in `dialect`; `name` is the model, or the ID of an operation.
    pub fn of(&self, dialect: Dialect, call: UpstreamCall, name: &str) -> Option<PathAndQuery> {
        self.find(dialect, call)?.with(name)
    }

    /// Returns every path as text, with `{}` in place of names.
    pub fn texts(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(_, _, path)| match path {
            Path::Ready(path) => path.as_str().to_owned(),
            Path::Named(before, after, _) => format!("{before}{{}}{after}"),
        })
    }

    fn find(&self, dialect: Dialect, call: UpstreamCall) -> Option<&Path> {
        self.0.iter().find(|(own, calls, _)| *own == dialect && *calls == call).map(|(_, _, path)| path)
    }
}

/// A field that an instance needs for its paths but does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing(pub &'static str);

impl Layout {
    /// Returns the addresses of the lists of models. `base_url`, without a trailing slash, is the kind's own or, if
    /// `is_own`, the instance's.
    pub fn lists(
        &self,
        base_url: &str,
        is_own: bool,
        place: &Place<'_>,
    ) -> Result<Vec<ListAddress>, Missing> {
        let address = |rule: &ListRule| {
            let path = filled(self, rule.template, place)?;
            let url = match rule.host.filter(|_| !is_own) {
                Some(host) => host(place)? + &path,
                None => fill(base_url, place)? + &path,
            };
            Ok(ListAddress { url, pages: rule.pages })
        };
        self.lists.iter().map(address).collect()
    }
}

/// Fills the instance's fields into `template` and appends the `api-version`, if the layout or the instance has one.
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

/// Fills the fields of `place` into `template`, a path or a base URL.
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
        ("extension_provider", "{provider}", place.provider),
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

/// Percent-encodes everything except letters, digits and `-._~@`. Returns `None` if the name is empty or one of its
/// segments is `.` or `..`.
fn encode(name: &str, slashes: Slashes, out: &mut String) -> Option<()> {
    if name.is_empty() || name.split('/').any(|part| part == "." || part == "..") {
        return None;
    }
    let kept = if slashes == Slashes::Kept { WITH_SLASHES } else { NAME };
    out.extend(percent::encode(name, kept));
    Some(())
}

const NAME: &AsciiSet = &percent::RESERVED.remove(b'@');
const WITH_SLASHES: &AsciiSet = &NAME.remove(b'/');
/// The calls for an answer in either form.
pub(super) const ANSWER: &[UpstreamCall] = &[UpstreamCall::Whole, UpstreamCall::Stream];

/// OpenAI's paths, and the paths at which some servers of its API support Anthropic's protocol.
pub(super) const OPENAI_RULES: &[PathRule] = &[
    PathRule { dialect: Dialect::Chat, calls: ANSWER, template: "/chat/completions" },
    PathRule { dialect: Dialect::Responses, calls: ANSWER, template: "/responses" },
    PathRule { dialect: Dialect::Responses, calls: &[UpstreamCall::Stored], template: "/responses/{id}" },
    PathRule {
        dialect: Dialect::Responses,
        calls: &[UpstreamCall::Cancel],
        template: "/responses/{id}/cancel",
    },
    PathRule {
        dialect: Dialect::Responses,
        calls: &[UpstreamCall::InputItems],
        template: "/responses/{id}/input_items",
    },
    PathRule {
        dialect: Dialect::Responses,
        calls: &[UpstreamCall::Count],
        template: "/responses/input_tokens",
    },
    PathRule { dialect: Dialect::Responses, calls: &[UpstreamCall::Compact], template: "/responses/compact" },
    PathRule { dialect: Dialect::Messages, calls: ANSWER, template: "/messages" },
    PathRule {
        dialect: Dialect::Messages,
        calls: &[UpstreamCall::Count],
        template: "/messages/count_tokens",
    },
    PathRule { dialect: Dialect::Embeddings, calls: ANSWER, template: "/embeddings" },
    PathRule { dialect: Dialect::Speech, calls: ANSWER, template: "/audio/speech" },
    PathRule { dialect: Dialect::Transcription, calls: ANSWER, template: "/audio/transcriptions" },
    PathRule { dialect: Dialect::Images, calls: ANSWER, template: "/images/generations" },
    PathRule { dialect: Dialect::Videos, calls: &[UpstreamCall::Start], template: "/videos" },
    PathRule { dialect: Dialect::Videos, calls: &[UpstreamCall::Poll], template: "/videos/{id}" },
    PathRule { dialect: Dialect::Videos, calls: &[UpstreamCall::Content], template: "/videos/{id}/content" },
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
        PathRule {
            dialect: Dialect::Bedrock,
            calls: &[UpstreamCall::Whole],
            template: "/model/{model}/converse",
        },
        PathRule {
            dialect: Dialect::Gemini,
            calls: &[UpstreamCall::Stream],
            template: "/{project}/{model}:stream?alt=sse",
        },
        PathRule { dialect: Dialect::Videos, calls: &[UpstreamCall::Poll], template: "/v1/{id}" },
    ];
    const LISTS: &[ListRule] = &[
        ListRule { host: None, template: "/models", pages: Pages::One },
        ListRule { host: Some(beside), template: "/more?n=1", pages: Pages::NextToken },
    ];
    fn beside(place: &Place<'_>) -> Result<String, Missing> {
        fill("https://{region}.example", place)
    }

    const LAYOUT: Layout = Layout { base_ends: "", rules: RULES, lists: LISTS, api_version: None };

    #[test]
    fn model_names_are_encoded_within_their_path_segment() {
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
            let found = path(Dialect::Bedrock, UpstreamCall::Whole, name);
            assert_eq!(found.unwrap_or_default(), want, "{name}");
        }
        assert_eq!(path(Dialect::Gemini, UpstreamCall::Stream, "m").unwrap(), "/base/p-1/m:stream?alt=sse");
        assert_eq!(
            path(Dialect::Videos, UpstreamCall::Poll, "models/v/operations/1").unwrap(),
            "/base/v1/models/v/operations/1"
        );
        assert_eq!(path(Dialect::Videos, UpstreamCall::Poll, "models/../../x"), None);
        assert_eq!(path(Dialect::Videos, UpstreamCall::Poll, "x?key=1").unwrap(), "/base/v1/x%3Fkey%3D1");
        assert_eq!(path(Dialect::Chat, UpstreamCall::Whole, "m"), None, "not spoken there");
    }

    #[test]
    fn a_missing_path_parameter_is_named() {
        assert_eq!(Paths::new(&LAYOUT, "", &Place::default()), Err(Missing("project")));
    }

    #[test]
    fn the_api_version_is_added_to_every_path() {
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
    fn list_urls_follow_the_default_or_the_configured_base_url() {
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
