//! The description of a route: a line of text, its query parameters, and the shapes of its body and answer. Tests generate
//! `docs/admin-api.md` and the console's types from it; other builds do not contain it.

#[cfg(test)]
pub(super) use schemars::JsonSchema as Shape;

/// A type whose shape the documentation shows.
#[cfg(not(test))]
pub(super) trait Shape {}

#[cfg(not(test))]
impl<T: ?Sized> Shape for T {}

/// The description of a route.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reference {
    /// One sentence.
    #[cfg(test)]
    pub(super) doc: &'static str,
    #[cfg(test)]
    pub(super) query: &'static [&'static str],
    /// Query parameters shared with other routes.
    #[cfg(test)]
    pub(super) filters: &'static [&'static str],
    #[cfg(test)]
    pub(super) body: Option<ShapeOf>,
    #[cfg(test)]
    pub(super) answer: Option<ShapeOf>,
}

/// Returns the schema of a type, by reference if it has a name.
#[cfg(test)]
type ShapeOf = fn(&mut schemars::SchemaGenerator) -> schemars::Schema;

#[cfg(test)]
impl Reference {
    pub(super) const NONE: Self = Self { doc: "", query: &[], filters: &[], body: None, answer: None };

    pub(super) const fn answers<A: Shape>(mut self, doc: &'static str) -> Self {
        self.doc = doc;
        self.answer = Some(|generator| generator.subschema_for::<A>());
        self
    }

    pub(super) const fn takes<B: Shape>(mut self) -> Self {
        self.body = Some(|generator| generator.subschema_for::<B>());
        self
    }

    pub(super) const fn query(mut self, parameters: &'static [&'static str]) -> Self {
        self.query = parameters;
        self
    }

    pub(super) const fn filters(mut self, parameters: &'static [&'static str]) -> Self {
        self.filters = parameters;
        self
    }
}

#[cfg(not(test))]
impl Reference {
    pub(super) const NONE: Self = Self {};

    pub(super) const fn answers<A: Shape>(self, _: &'static str) -> Self {
        self
    }

    pub(super) const fn takes<B: Shape>(self) -> Self {
        self
    }

    pub(super) const fn query(self, _: &'static [&'static str]) -> Self {
        self
    }

    pub(super) const fn filters(self, _: &'static [&'static str]) -> Self {
        self
    }
}

/// The answer of a route that answers 204, without a body.
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct NoContent;

/// The answer of a route that sends a file.
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct FileContent;

/// The body of a request of the data plane.
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DataPlaneBody {}

/// The answer of the data plane.
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DataPlaneAnswer {}

/// A body without members.
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct NoMembers {}
